"""The types of predicate expressions.

Numbers come in two sorts. *Exact* values (integers, decimals, dates, timestamps, times, intervals) are
integers with a fixed decimal scale: a `decimal128(10, 2)` is an integer of hundredths, a
`timestamp[ms]` an integer of thousandths of a second. Each exact type carries the range its
integers can take, so that arithmetic is exact by construction: the range of every
sub-expression is known before the first tuple comes. *Floats* are IEEE 754 binary32/64.
"""

from __future__ import annotations

from dataclasses import dataclass

INT128_MIN, INT128_MAX = -(2**127), 2**127 - 1
TIME_SCALE = {"s": 0, "ms": 3, "us": 6, "ns": 9}
SECONDS_PER_DAY = 86_400

EXACT_NAMES = ("int", "decimal", "date", "timestamp", "time", "interval")
FLOAT_NAMES = ("float32", "float64")


@dataclass(frozen=True)
class Type:
    """One of: bool, the exact types, the floats, string, binary, null (an untyped NULL).

    `scale`: an exact integer v stands for v / 10**scale (seconds for timestamps, times of day and intervals,
    days for dates). `lo`, `hi`: the range of that integer. `tz`: timestamps with a time zone.
    """

    name: str
    scale: int = 0
    lo: int = 0
    hi: int = 0
    tz: bool = False

    @property
    def is_exact(self) -> bool:
        return self.name in EXACT_NAMES

    @property
    def is_float(self) -> bool:
        return self.name in FLOAT_NAMES

    @property
    def is_number(self) -> bool:
        return self.is_float or self.name in ("int", "decimal")

    @property
    def bits(self) -> int:
        """Smallest of 32, 64, 128 signed bits that holds the range, 0 if none does. Exact types only."""
        for bits in (32, 64, 128):
            if -(1 << (bits - 1)) <= self.lo and self.hi < 1 << (bits - 1):
                return bits
        return 0

    def __str__(self) -> str:
        if self.name == "decimal":
            return f"decimal(scale {self.scale})"
        if self.name == "timestamp":
            unit = {v: k for k, v in TIME_SCALE.items()}.get(self.scale, f"10^-{self.scale} s")
            return f"timestamp[{unit}{', tz' if self.tz else ''}]"
        return self.name


BOOL = Type("bool")
NULL = Type("null")
STRING = Type("string")
BINARY = Type("binary")
FLOAT32 = Type("float32")
FLOAT64 = Type("float64")


def integer(lo: int, hi: int) -> Type:
    return Type("int", 0, lo, hi)


def signed(bits: int) -> Type:
    return integer(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def unsigned(bits: int) -> Type:
    return integer(0, (1 << bits) - 1)


def decimal(precision: int, scale: int) -> Type:
    return Type("decimal", scale, -(10**precision) + 1, 10**precision - 1)


# The integers that CAST can make, by their names in SQL.
INTEGERS: dict[str, Type] = {
    "TINYINT": signed(8), "SMALLINT": signed(16), "INT": signed(32), "BIGINT": signed(64),
    "UTINYINT": unsigned(8), "USMALLINT": unsigned(16), "UINT": unsigned(32), "UBIGINT": unsigned(64),
}  # fmt: skip


def sql_name(kind: Type) -> str:
    """The name in SQL of an integer of `INTEGERS`, or of a decimal."""
    for name, integer_type in INTEGERS.items():
        if integer_type == kind:
            return name
    return f"DECIMAL({len(str(kind.hi))}, {kind.scale})"


def timestamp(unit: str, tz: bool = False) -> Type:
    return Type("timestamp", TIME_SCALE[unit], -(2**63), 2**63 - 1, tz)


def time_of_day(unit: str) -> Type:
    return Type("time", TIME_SCALE[unit], 0, SECONDS_PER_DAY * 10 ** TIME_SCALE[unit] - 1)


def interval(unit: str) -> Type:
    return Type("interval", TIME_SCALE[unit], -(2**63), 2**63 - 1)


DATE = Type("date", 0, -(2**31), 2**31 - 1)
