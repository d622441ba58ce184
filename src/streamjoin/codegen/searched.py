"""Rows in the form that a search for nearest rows reads (`kernels/sorted/blocks.py`): a word for the equality keys, and
a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from streamjoin.codegen.evaluate import Bounds, DataByColumn, Filter, Keys, key_dtype
from streamjoin.codegen.programs import combined
from streamjoin.semantics.analysis import Clause
from streamjoin.semantics.expressions import Expr, columns
from streamjoin.semantics.score_shape import ScoreShape
from streamjoin.semantics.types import Type

SIGN = np.uint64(2**63)


def searched_dtype(kind: Type) -> np.dtype:
    """The array type of keys and targets: the float itself, or uint64 for exact numbers."""
    return key_dtype(kind) if kind.is_float else np.dtype(np.uint64)


class SearchedRows:
    """Computes, for rows of one side: their words, their numbers, and whether they take part.

    Rows with equal keys have equal words; with a single equality, different keys have different words. The numbers are
    ordered as the values of `value`, or reversed if `sign` is -1; without a value, or if `sign` is 0, they are 0. A row
    does not take part if a key or its value is NULL or NaN, or if it fails the condition.
    """

    def __init__(
        self, keys: Keys | Bounds, value: Expr | None, sign: int, condition: Expr | None, dtype: np.dtype
    ):
        self._keys, self._sign, self._dtype = keys, sign, dtype
        self._value = None if value is None else Keys([value])
        self._condition = None if condition is None else Filter(condition)
        read = [] if value is None else columns(value)
        self.columns = tuple(
            dict.fromkeys([*keys.columns, *read, *(() if condition is None else columns(condition))])
        )

    def __call__(self, data: DataByColumn, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Words, numbers, and whether each row takes part."""
        keys, *_, known = self._keys([data[column] for column in self._keys.columns], count)
        known = known.copy()
        for key in keys:
            known &= key == key  # NaN equals nothing
        words = combined(keys) if keys else np.zeros(count, np.int64)
        if self._condition is not None:
            known &= self._condition(data, count)
        return words, self._numbers(data, count, known), known

    def _numbers(self, data: DataByColumn, count: int, known: np.ndarray) -> np.ndarray:
        if self._value is None:
            return np.zeros(count, self._dtype)
        (values,), there = self._value([data[column] for column in self._value.columns], count)
        known &= there
        if self._dtype.kind == "f":
            known &= values == values
        if self._sign == 0:
            return np.zeros(count, self._dtype)
        if self._dtype.kind == "f":
            return values if self._sign > 0 else -values
        numbers = values.astype(np.int64).view(np.uint64) ^ SIGN
        return numbers if self._sign > 0 else ~numbers


def search_columns(
    shape: ScoreShape, equalities: Sequence[Clause], conditions: Mapping[str, Expr | None]
) -> dict[str, SearchedRows]:
    """What computes the columns of each side: keys of right rows, and targets of left rows."""
    dtype = searched_dtype(shape.key.type)
    keys = Keys([clause.bands[0].key for clause in equalities])
    return {
        "left": SearchedRows(Bounds(equalities), shape.target, shape.target_sign, conditions["left"], dtype),
        "right": SearchedRows(keys, shape.key, shape.key_sign, conditions["right"], dtype),
    }
