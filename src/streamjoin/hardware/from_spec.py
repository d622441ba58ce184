"""A circuit for a `JoinSpec`: derives widths, windows and predicate; refuses a join that no circuit can do.

A circuit compares one integer key of each side: an equality, a band, an inequality or `<>` between two columns of
exact types. Payloads are row numbers; the rows themselves stay with the caller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamjoin.hardware.designs import Design
from streamjoin.hardware.parameters import MOST_BITS, HardwareError, KeyPredicate, Parameters
from streamjoin.hardware.simulate import Stream
from streamjoin.semantics.analysis import Band, analyse
from streamjoin.semantics.callables import CallablePredicate
from streamjoin.semantics.expressions import Column, Expr
from streamjoin.semantics.linear import linear_form
from streamjoin.semantics.oracle import column_values
from streamjoin.semantics.render import to_sql
from streamjoin.semantics.spec import JoinSpec

_CAN = (
    "a circuit compares one column of left with one of right, both exact (integers, decimals, dates, timestamps): "
    "left.x = right.a, left.x BETWEEN right.a - 5 AND right.a + 5, left.x < right.a, left.x <> right.a"
)


@dataclass(frozen=True)
class SpecCircuit:
    """The parameters of the circuit for a spec, and the columns that hold the keys."""

    parameters: Parameters
    left_key: str
    right_key: str

    def stream(self, table: pa.Table, side: str) -> Stream:
        """A table's rows as input of the circuit: rows with NULL keys are not valid, payloads are row numbers."""
        keys = column_values(table.column(self.left_key if side == "left" else self.right_key))
        valid = [int(key is not None) for key in keys]
        return Stream([key or 0 for key in keys], range(len(keys)), valid)


def circuit_for(spec: JoinSpec, design: Design, cores: int, **settings: Any) -> SpecCircuit:
    """The circuit of a design that runs the spec's join. `settings` are fields of `Parameters`."""
    if spec.how != "inner" or spec.keep != "all" or spec.left_tie or spec.right_tie:
        raise HardwareError(
            "a circuit gives all matches in pairs: leave how, keep, left_tie and right_tie out",
            field="spec",
            given=spec,
            allowed="how='inner' and keep='all', without ties",
        )
    left, right, predicate = _key_comparison(spec)
    lo, hi = (
        pick(column.type.__getattribute__(end) for column in (left, right))
        for pick, end in ((min, "lo"), (max, "hi"))
    )
    signed = lo < 0
    width = max(max(hi, -lo - 1).bit_length() + signed, 1)
    if width > MOST_BITS:
        raise HardwareError(
            f"{left.name} and {right.name} need {width} bits: a key has at most {MOST_BITS}",
            field="on",
            given=spec.on,
            allowed=f"keys of up to {MOST_BITS} bits",
        )
    segments = {f"{side}_segment": _segment(spec, side, cores) for side in ("left", "right")}
    parameters = design.parameters(
        cores=cores, key_width=width, signed=signed, predicate=predicate, **segments, **settings
    )
    return SpecCircuit(parameters, left.name, right.name)


def _segment(spec: JoinSpec, side: str, cores: int) -> int:
    window = spec.side_window(side)
    if not window.rows:
        raise HardwareError(
            f"the {side} window is a time window: a circuit needs windows counted in rows; give RowWindow(...)",
            field=f"window.{side}",
            given=window,
            allowed="RowWindow(...)",
        )
    if window.size == 0 or window.size % cores:
        raise HardwareError(
            f"the {side} window has {window.size} rows, which {cores} cores cannot share evenly: "
            f"give a multiple of {cores}",
            field=f"window.{side}",
            given=window.size,
            allowed=f"a multiple of {cores}",
        )
    return window.size // cores


def _key_comparison(spec: JoinSpec) -> tuple[Column, Column, KeyPredicate]:
    """The two key columns and the condition on their difference."""
    if isinstance(spec.predicate, CallablePredicate):
        raise HardwareError(
            f"the predicate is a Python function: {_CAN}", field="on", given=spec.on, allowed=_CAN
        )
    path = analyse(spec.predicate).left
    if path.residual is not None or len(path.clauses) != 1:
        raise HardwareError(
            f"{to_sql(spec.predicate)} cannot be decided by comparing one pair of keys: {_CAN}",
            field="on",
            given=spec.on,
            allowed=_CAN,
        )
    bands = path.clauses[0].bands
    keys = {band.key for band in bands}
    bounds = [_difference(bound) for band in bands for bound in (band.lo, band.hi) if bound is not None]
    columns = {column for column, _ in bounds}
    key = keys.pop()
    if keys or len(columns) != 1 or not isinstance(key, Column) or not key.type.is_exact:
        raise HardwareError(
            f"{to_sql(spec.predicate)} is not a comparison of two columns: {_CAN}",
            field="on",
            given=spec.on,
            allowed=_CAN,
        )
    return key, columns.pop(), _predicate(bands)


def _difference(bound: Expr) -> tuple[Column, int]:
    """A bound as right's column plus a constant."""
    form = linear_form(bound) if bound.type.is_exact else None
    if form is None or len(form.terms) != 1:
        raise HardwareError(
            f"{to_sql(bound)} is not a column plus a constant: {_CAN}",
            field="on",
            given=to_sql(bound),
            allowed=_CAN,
        )
    [(column, factor)] = form.terms.items()
    if not isinstance(column, Column) or factor != 1:
        raise HardwareError(
            f"{to_sql(bound)} is not a column plus a constant: {_CAN}",
            field="on",
            given=to_sql(bound),
            allowed=_CAN,
        )
    return column, form.const


def _predicate(bands: tuple[Band, ...]) -> KeyPredicate:
    """One band, or the two one-sided bands outside of a band (`negated`)."""
    ends = [
        [None if bound is None else _difference(bound)[1] for bound in (band.lo, band.hi)] for band in bands
    ]
    if len(ends) == 1:
        return KeyPredicate(ends[0][0], ends[0][1])
    below = [hi for lo, hi in ends if lo is None and hi is not None]
    above = [lo for lo, hi in ends if hi is None and lo is not None]
    if len(ends) != 2 or len(below) != 1 or len(above) != 1 or below[0] + 1 > above[0] - 1:
        raise HardwareError(
            f"the predicate allows {len(bands)} ranges of the key: {_CAN}",
            field="on",
            given=len(bands),
            allowed=_CAN,
        )
    return KeyPredicate(below[0] + 1, above[0] - 1, negated=True)
