"""Keys of rows that only equalities compare: a word of 64 bits, and bytes where equal words may be of unequal keys."""

from __future__ import annotations

import numpy as np

from streamjoin.codegen.columns import ColumnData
from streamjoin.codegen.prepared import Stored
from streamjoin.codegen.programs import WindowProgram
from streamjoin.index.probing import Fetch
from streamjoin.index.tuples import ProbingTuples
from streamjoin.kernels.hash.last_rows import add_widths, append_text, append_words
from streamjoin.semantics.spec import SIDES

NO_BYTES = np.empty(0, np.uint8)
WORD_BYTES = 8  # of a number, and of the size of a text


class RowKeys:
    """The keys of both sides. A single number is its own word; else the word is a hash, and the bytes are all values of
    the key. Text is fetched when the bytes are asked for, so rows that wait hold none."""

    def __init__(self, program: WindowProgram, fetch: Fetch):
        """`program`: that of the right window, which `compares_keys_only`."""
        self._program, self._fetch = program, fetch
        self.exact = program.is_one_equality  # words are enough
        (self._band,) = program.indexable(True)
        self._numbers = [] if self.exact else program.number_keys
        self._texts = dict(zip(SIDES[::-1], program.text_keys, strict=True))

    @property
    def dtype(self) -> np.dtype:
        return self._program.band_dtype(self._band)

    def of(self, side: str, tuples: ProbingTuples) -> Stored:
        """The words of rows, the numbers in their keys, and which keys are known."""
        words, *numbers = (self._key(side, tuples, band) for band in (self._band, *self._numbers))
        known = tuples.stored.known if side == "right" else tuples.probing.known
        assert known is not None
        for values in numbers:
            if values.dtype.kind == "f":
                known = known & (values == values)
        return Stored((words, *numbers), known)

    def _key(self, side: str, tuples: ProbingTuples, band: int) -> np.ndarray:
        if side == "right":
            return self._program.key_of_band(tuples.stored, band)
        return self._program.bounds_of_band(tuples.probing, band)[0]

    def bytes_of(
        self, side: str, numbers: tuple[np.ndarray, ...], ids: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Where the bytes of each row's key end, after a zero, and the bytes. `numbers`: as stored."""
        if self.exact or not len(ids):
            return np.zeros(len(ids) + 1, np.int64), NO_BYTES
        columns = self._texts[side]
        texts = [data.parts for data in self._text(side, ids)] if columns else []
        if len(texts) == 1 and not numbers:
            ends, values = texts[0]
            return ends - ends[0], values[ends[0] : ends[-1]]
        ends = np.arange(len(ids) + 1) * WORD_BYTES * (len(numbers) + len(texts))
        for value_ends, _ in texts:
            add_widths(ends, np.diff(value_ends))
        at, out = ends[:-1].copy(), np.empty(int(ends[-1]), np.uint8)
        for values in numbers:
            append_words(values, at, out)
        for value_ends, values in texts:
            append_text(value_ends, values, at, out)
        return ends, out

    def _text(self, side: str, ids: np.ndarray) -> list[ColumnData]:
        columns = self._texts[side]
        found = self._fetch(side, tuple(dict.fromkeys(columns)), ids)
        return [found[column] for column in columns]
