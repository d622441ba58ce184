"""Functions of predicates for a column of values: of floats, and of text.

SUBSTRING and TRIM return spans of the bytes they are given. LOWER, UPPER and `||` make new bytes, which are added to
the tile's pool.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from streamjoin.codegen.vec import Limbs, TextSpans, Tile
from streamjoin.kernels.values import libm, tiles
from streamjoin.semantics.expressions import Call

_NO_LIMIT = np.int64(2**63 - 1)
ASCII = 128


def _round_away(call: Call, data: list[Any], tile: Tile) -> Any:
    whole = np.trunc(data[0])
    away = whole + np.copysign(whole.dtype.type(1), data[0])
    return np.where(np.abs(data[0] - whole) >= 0.5, away, whole)


def _of_libm(call: Call, data: list[Any], tile: Tile) -> np.ndarray:
    out = np.empty(tile.count)
    x, y = (tile.array(each, np.float64) for each in (data[0], data[-1]))
    libm.apply(libm.NAMES.index(call.op), x, y, out)
    return out


def _month(given: str, wanted: str) -> Callable[[Call, list[Any], Tile], Any]:
    """NumPy's conversion between days and months. NumPy counts both from 1970, as we do."""
    return lambda call, data, tile: (
        np.asarray(data[0], np.int64).astype(f"M8[{given}]").astype(f"M8[{wanted}]").astype(np.int64)
    )


def _text_lengths(call: Call, data: list[Any], tile: Tile) -> Any:
    if call.args[0].type.name == "binary":
        return data[0].length
    out = np.empty(tile.count, np.int64)
    tiles.text_length(*tile.texts(data[0]), out)
    return out


def _substring_spans(call: Call, data: list[Any], tile: Tile) -> TextSpans:
    spans = TextSpans(np.empty(tile.count, np.int64), np.empty(tile.count, np.int64))
    bounds = [tile.array(each, np.int64) for each in (*data[1:], _NO_LIMIT)[:2]]
    tiles.text_substring(*tile.texts(data[0]), *bounds, *spans)
    return spans


def _trimmed_spans(call: Call, data: list[Any], tile: Tile) -> TextSpans:
    spans = TextSpans(np.empty(tile.count, np.int64), np.empty(tile.count, np.int64))
    tiles.text_trim(*tile.texts(data[0], data[1]), call.op != "rtrim", call.op != "ltrim", *spans)
    return spans


def _gathered_bytes(data: np.ndarray, start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """The bytes of texts, one after the other."""
    out = np.empty(int(length.sum()), np.uint8)
    tiles.text_gather(data, start, length, out)
    return out


def _concat(call: Call, data: list[Any], tile: Tile) -> TextSpans:
    starts, lengths = (np.stack([tile.array(part[end], np.int64) for part in data], axis=1) for end in (0, 1))
    return tile.add_texts(_gathered_bytes(tile.pool, starts.ravel(), lengths.ravel()), lengths.sum(axis=1))


class _Case(dict[int, str]):
    """A cache of each code point's other case. A code point whose other case is several code points does not change."""

    def __init__(self, change: Callable[[str], str]):
        self.change = change
        self.of_bytes = np.array(
            [ord(change(chr(code))) if code < ASCII else code for code in range(256)], np.uint8
        )

    def __missing__(self, code: int) -> str:
        changed = self.change(chr(code))
        self[code] = changed if len(changed) == 1 else chr(code)
        return self[code]


def _changed(content: bytes, case: _Case) -> bytes:
    text = content.decode(errors="surrogateescape")
    return text.translate(case).encode(errors="surrogateescape")


def _cased(case: _Case) -> Callable[[Call, list[Any], Tile], TextSpans]:
    def operate(call: Call, data: list[Any], tile: Tile) -> TextSpans:
        pool, start, length = tile.texts(data[0])
        content = _gathered_bytes(pool, start, length)
        if not len(content) or content.max() < ASCII:
            return tile.add_texts(case.of_bytes[content], length)
        ends = np.cumsum(length)
        texts = [
            _changed(content[first:last].tobytes(), case)
            for first, last in zip(ends - length, ends, strict=True)
        ]
        lengths = np.array([len(text) for text in texts], np.int64)
        return tile.add_texts(np.frombuffer(b"".join(texts), np.uint8), lengths)

    return operate


def _number_text(call: Call, data: list[Any], tile: Tile) -> TextSpans:
    kind = call.args[0].type
    if kind.name == "bool":
        texts = [b"true" if value else b"false" for value in tile.array(data[0], np.bool_).tolist()]
    elif isinstance(data[0], Limbs):
        lows, highs = (np.broadcast_to(limb, (tile.count,)).tolist() for limb in data[0])
        texts = [_decimal_text((high << 64) | low, kind.scale) for low, high in zip(lows, highs, strict=True)]
    else:
        texts = [_decimal_text(value, kind.scale) for value in tile.array(data[0], np.int64).tolist()]
    lengths = np.array([len(text) for text in texts], np.int64)
    return tile.add_texts(np.frombuffer(b"".join(texts), np.uint8), lengths)


def _decimal_text(value: int, scale: int) -> bytes:
    """The digits of an integer of units of 10**-scale."""
    digits = f"{abs(value):0{scale + 1}}"
    point = len(digits) - scale
    return f"{'-' * (value < 0)}{digits[:point]}{'.' * (scale > 0)}{digits[point:]}".encode()


COLUMN_FUNCTIONS: dict[str, Callable[[Call, list[Any], Tile], Any]] = {
    "round": _round_away,
    **dict.fromkeys(libm.NAMES, _of_libm),
    "month_number": _month("D", "M"),
    "month_start": _month("M", "D"),
    "length": _text_lengths,
    "substring": _substring_spans,
    **dict.fromkeys(("trim", "ltrim", "rtrim"), _trimmed_spans),
    "lower": _cased(_Case(str.lower)),
    "upper": _cased(_Case(str.upper)),
    "concat": _concat,
    "to_text": _number_text,
}
