"""The commands `hw simulate`, `verilog`, `synth`, `route` and `report`: joins as circuits."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import streamjoin as sj
from streamjoin.cli.app import app, dev
from streamjoin.cli.schema import parse_schema, parse_window, with_time
from streamjoin.cli.terminal import terminal
from streamjoin.hardware.parameters import Parameters
from streamjoin.hardware.tools import Heard, need

if TYPE_CHECKING:
    from streamjoin.hardware.designs import Design

hw = typer.Typer(
    help="Joins as circuits: simulate, write Verilog, synthesise, place and route.", no_args_is_help=True
)
dev.add_typer(hw, name="hw")
app.add_typer(hw, name="hw", hidden=True)
progress = Console(stderr=True)

DesignOption = Annotated[str, typer.Option(help="handshake (the paper's) or low-latency.")]
CoresOption = Annotated[int, typer.Option(help="Number of join cores.")]
SegmentOption = Annotated[int, typer.Option(help="Tuples of each stream a core holds; without --on.")]
OnOption = Annotated[
    str | None, typer.Option(help="SQL over left and right; else an equality of 32-bit keys.")
]
LeftOption = Annotated[str, typer.Option(help="Columns of left, such as 'x int', with --on.")]
RightOption = Annotated[str, typer.Option(help="Columns of right, with --on.")]
RowsOption = Annotated[str | None, typer.Option(help="Row window, such as 512 or '512, 256', with --on.")]
LanesOption = Annotated[int | None, typer.Option(help="Results that can leave in a cycle.")]
DiscardOption = Annotated[
    bool, typer.Option("--discard", help="Refuse and count tuples instead of holding back.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def chosen(
    design: str, cores: int, segment: int, on: str | None, left: str, right: str, rows: str | None,
    lanes: int | None, discard: bool,
) -> tuple[Design, Parameters]:  # fmt: skip
    """The design and parameters that the options ask for. Call it before importing anything that needs Amaranth."""
    need("amaranth", "a circuit")
    if on is None and (left or right or rows):
        raise sj.StreamJoinError(
            "--left, --right and --rows describe the join of --on, which is not given",
            field="--on",
            allowed="a predicate",
            given=None,
        )
    if on is not None and not (left and right and rows):
        raise sj.StreamJoinError(
            "--on needs the columns of both sides and the windows, such as "
            "--left 'x int' --right 'a int' --rows 512",
            field="--on",
            given=on,
            allowed="--on with --left, --right and --rows",
        )
    from streamjoin.hardware.designs import design_named
    from streamjoin.hardware.from_spec import circuit_for

    found = design_named(design)
    settings: dict[str, Any] = {"lossless": not discard, **({} if lanes is None else {"lanes": lanes})}
    if on is None:
        return found, found.parameters(cores=cores, left_segment=segment, right_segment=segment, **settings)
    (left_schema, left_time), (right_schema, right_time) = (
        with_time(parse_schema(text), None) for text in (left, right)
    )
    spec = sj.JoinSpec(left_schema, right_schema, on, parse_window(None, rows), left_time, right_time)
    return found, circuit_for(spec, found, cores, **settings).parameters


@contextmanager
def working(text: str) -> Iterator[Heard]:
    """A spinner with the current step of a tool: passes of Yosys, notes of nextpnr."""
    with progress.status(text) as status:

        def heard(line: str) -> None:
            note = re.match(r"(?:Info: +|[\d.]+ Executing )(\S.*)", line)
            if note:
                room = max(20, progress.width - len(text) - 8)
                status.update(f"{text}: {escape(note[1][:room])}")

        yield heard


def show(title: str, facts: dict[str, Any], as_json: bool) -> None:
    """Facts as JSON for programs or as a table for people."""
    if as_json:
        terminal.print_json(json.dumps(facts))
        return
    table = Table(show_header=False, title=title, title_justify="left")
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), f"{value:,.2f}" if isinstance(value, float) else f"{value}")
    terminal.print(table)


@hw.command()
def simulate(
    design: DesignOption = "low-latency", cores: CoresOption = 4, segment: SegmentOption = 8, on: OnOption = None,
    left: LeftOption = "", right: RightOption = "", rows: RowsOption = None, lanes: LanesOption = None,
    discard: DiscardOption = False,
    tuples: Annotated[int, typer.Option(min=1, help="Tuples of each stream.")] = 1024,
    keys: Annotated[int, typer.Option(min=1, help="Different keys; equal ones meet at a rate of 1 / keys.")] = 100,
    mhz: Annotated[float, typer.Option(min=1, help="Clock the rates are computed for.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the keys.")] = 1,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Run random streams through the circuit in Verilator, check every result, print the rates."""
    found, p = chosen(design, cores, segment, on, left, right, rows, lanes, discard)
    from streamjoin.hardware.simulate import JoinSimulator, Stream

    with progress.status(f"building a simulator of {p.cores} cores; it is kept for the next time"):
        simulator = JoinSimulator(found.build(p))
    dice = random.Random(seed)
    sides = [Stream([dice.randrange(keys) for _ in range(tuples)], range(tuples)) for _ in range(2)]
    run = simulator.run(sides[0], sides[1])
    expected = found.finds(run.accepted, sides[0].keys, sides[1].keys, p)
    right_ones = Counter((l, r) for _, l, _, r in run.results) == Counter(expected)
    facts = {
        "design": design,
        "cores": p.cores,
        "predicate": str(p.predicate),
        "windows": f"{p.left_window}, {p.right_window}",
        "cycles": run.cycles,
        "accepted": len(run.accepted),
        "refused": sum(run.refused),
        "results": len(run.results),
        "input_M_tuples_per_s": round(len(run.accepted) / run.cycles * mhz, 3),
        "output_M_results_per_s": round(len(run.results) / run.cycles * mhz, 3),
        "as_the_oracle_says": right_ones,
    }
    show(f"simulated, rates at {mhz:g} MHz", facts, as_json)
    if not right_ones:
        raise typer.Exit(1)


@hw.command()
def verilog(
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write.")],
    design: DesignOption = "low-latency", cores: CoresOption = 4, segment: SegmentOption = 8, on: OnOption = None,
    left: LeftOption = "", right: RightOption = "", rows: RowsOption = None, lanes: LanesOption = None,
    discard: DiscardOption = False,
) -> None:  # fmt: skip
    """Write the circuit as Verilog."""
    found, p = chosen(design, cores, segment, on, left, right, rows, lanes, discard)
    from streamjoin.hardware.verilog import to_verilog

    text = to_verilog(found.build(p))
    try:
        output.write_text(text)
    except OSError as error:
        raise sj.StreamJoinError(
            f"{output} cannot be written: {error.strerror}",
            field="--output",
            given=str(output),
            allowed="a file that can be written",
        ) from error
    terminal.print(
        f"{output}: {text.count(chr(10)):,} lines, {text.count('endmodule')} modules", highlight=False
    )


@hw.command()
def synth(
    design: DesignOption = "low-latency", cores: CoresOption = 4, segment: SegmentOption = 8, on: OnOption = None,
    left: LeftOption = "", right: RightOption = "", rows: RowsOption = None, lanes: LanesOption = None,
    discard: DiscardOption = False,
    target: Annotated[str, typer.Option(help="ecp5 (Lattice) or xc6v (Virtex-6, the paper's).")] = "ecp5",
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Map the circuit to the cells of an FPGA and count them."""
    found, p = chosen(design, cores, segment, on, left, right, rows, lanes, discard)
    from streamjoin.hardware.implementation import synthesise

    with working(f"Yosys maps {p.cores} cores to {target}") as heard:
        resources = synthesise(found.build(p), target, heard)
    facts = asdict(resources)
    cells = facts.pop("cells")
    show(f"{design}, {p.cores} cores on {target}", {**facts, **(cells if as_json else {})}, as_json)


@hw.command()
def route(
    design: DesignOption = "low-latency", cores: CoresOption = 4, segment: SegmentOption = 8, on: OnOption = None,
    left: LeftOption = "", right: RightOption = "", rows: RowsOption = None, lanes: LanesOption = None,
    discard: DiscardOption = False,
    seeds: Annotated[int, typer.Option(min=1, help="How many placements to try; the best counts.")] = 1,
    flow: Annotated[
        str, typer.Option(help="wide; narrow: for circuits full of multiplexers; quick: sooner, at a slower clock.")
    ] = "wide",
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Place and route the circuit on a Lattice ECP5-85F; the clock it reaches and what bounds it."""
    found, p = chosen(design, cores, segment, on, left, right, rows, lanes, discard)
    from streamjoin.hardware.implementation import place_and_route

    routed = []
    for seed in range(1, seeds + 1):
        with working(f"placing and routing {p.cores} cores, seed {seed} of {seeds}") as heard:
            routed.append(place_and_route(found.build(p), seed, heard, flow=flow))
    best = max(routed, key=lambda result: result.mhz)
    if as_json:
        terminal.print_json(
            json.dumps({"best": asdict(best), "seeds": [asdict(result) for result in routed]})
        )
        return
    facts: dict[str, Any] = {
        "mhz": round(best.mhz, 1),
        "mhz_of_each_seed": ", ".join(f"{result.mhz:.1f}" for result in routed),
        **{f"used_{name}": f"{used} of {there}" for name, (used, there) in best.used.items()},
        "longest_path": f"{best.path_from} to {best.path_to}",
        "logic_and_wires_ns": f"{best.path_logic_ns}, {best.path_routing_ns}",
    }
    show(f"{design}, {p.cores} cores on ECP5-85F", facts, as_json=False)


@hw.command("report")
def report_command(
    cores: CoresOption = 4, segment: SegmentOption = 8, on: OnOption = None,
    left: LeftOption = "", right: RightOption = "", rows: RowsOption = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Both designs side by side: windows, results, and cells on both targets."""
    need("amaranth", "a circuit")
    from streamjoin.hardware.designs import DESIGNS
    from streamjoin.hardware.implementation import SYNTHESIS, synthesise

    table: dict[str, dict[str, Any]] = {}
    for name in DESIGNS:
        found, p = chosen(name, cores, segment, on, left, right, rows, None, False)
        table[name] = {
            "windows": f"{p.left_window}, {p.right_window}",
            "result_bits": p.result_width,
            "lanes": p.lanes,
        }
        for target in SYNTHESIS:
            with working(f"Yosys maps {name} with {p.cores} cores to {target}") as heard:
                used = synthesise(found.build(p), target, heard)
            table[name] |= {f"{target}_luts": used.luts, f"{target}_flip_flops": used.flip_flops}
            table[name][f"{target}_block_rams"] = used.block_rams
    if as_json:
        terminal.print_json(json.dumps(table))
        return
    shown = Table("", *table, title=f"{cores} cores", title_justify="left")
    for fact in next(iter(table.values())):
        shown.add_row(fact.replace("_", " "), *(f"{facts[fact]}" for facts in table.values()))
    terminal.print(shown)
