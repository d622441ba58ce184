"""The join circuits by name, and what each promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamjoin.hardware import oracle
from streamjoin.hardware.handshake import HandshakeJoin
from streamjoin.hardware.low_latency import LowLatencyJoin
from streamjoin.hardware.parameters import HardwareError, Parameters

Oracle = Callable[..., list[oracle.TupleNumbers]]


@dataclass(frozen=True)
class Design:
    """A circuit, the oracle of the pairs it must find, and its default settings.

    `immediate`: every pair is found when its later tuple arrives. Otherwise some pairs wait for further arrivals.
    """

    build: Callable[[Parameters], Any]
    finds: Oracle
    immediate: bool
    settings: dict[str, int]

    def parameters(self, **given: Any) -> Parameters:
        """The design's settings, overridden by `given`; one comparator if more do not divide a segment evenly."""
        settings = {
            **self.settings,
            "lanes": min(self.settings["lanes"], given.get("cores", Parameters.cores)),
        }
        segments = (given.get(f"{side}_segment", Parameters.left_segment) for side in ("left", "right"))
        if any(segment % self.settings["comparators"] for segment in segments):
            settings["comparators"] = 1
        return Parameters(**{**settings, **given})


DESIGNS = {
    "handshake": Design(
        HandshakeJoin,
        oracle.handshake_join,
        False,
        {"core_fifo": 8, "merger_fifo": 4, "lanes": 1, "comparators": 1},
    ),
    "low-latency": Design(
        LowLatencyJoin,
        oracle.row_window_join,
        True,
        {"core_fifo": 16, "merger_fifo": 16, "lanes": 4, "comparators": 2},
    ),
}


def design_named(name: str) -> Design:
    if name not in DESIGNS:
        raise HardwareError(
            f"design is {name!r}; allowed: {', '.join(DESIGNS)}",
            field="design",
            given=name,
            allowed=list(DESIGNS),
        )
    return DESIGNS[name]
