"""What happens to the rows of a push, and the file for each step."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 1130, 706
LABELS, COLUMN, GAP = 128, 182, 14  # the width of the lanes' labels, of a column, and between columns
STYLE = """
  text { font: 12px system-ui, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #24292f; }
  .lane { fill: #f3f5f8; } .label { font-weight: 600; font-size: 13px; } .thread { fill: #57606a; font-size: 11px; }
  .box { fill: #ffffff; stroke: #8c959f; } .store { fill: #fff8c5; stroke: #bf8700; }
  .title { font-weight: 600; font-size: 13px; }
  .file { font: 11px ui-monospace, Menlo, Consolas, monospace; fill: #0550ae; }
  .number { font-weight: 700; fill: #ffffff; font-size: 11px; } .dot { fill: #0969da; }
  .arrow { fill: none; stroke: #424a53; stroke-width: 1.5; marker-end: url(#head); }
  .note { fill: #57606a; font-size: 11px; }
"""


@dataclass(frozen=True)
class Box:
    """A step (numbered) or a store in column `column`, from `top` to `top + height`."""

    column: int
    top: int
    title: str
    lines: tuple[str, ...]
    files: tuple[str, ...]
    height: int = 96
    number: int = 0
    store: bool = False

    @property
    def left(self) -> int:
        return LABELS + self.column * (COLUMN + GAP)

    @property
    def middle(self) -> int:
        return self.left + COLUMN // 2

    @property
    def bottom(self) -> int:
        return self.top + self.height

    def svg(self) -> list[str]:
        kind = "store" if self.store else "box"
        out = [
            f'<rect class="{kind}" x="{self.left}" y="{self.top}" width="{COLUMN}" height="{self.height}" rx="6"/>'
        ]
        indent = 0
        if self.number:
            indent = 24
            out.append(f'<circle class="dot" cx="{self.left + 18}" cy="{self.top + 19}" r="9"/>')
            out.append(text(self.left + 18, self.top + 23, str(self.number), "number", "middle"))
        out.append(text(self.left + 10 + indent, self.top + 24, self.title, "title"))
        y = self.top + 43
        for line in self.lines:
            out.append(text(self.left + 10, y, line))
            y += 15
        for number, file in enumerate(self.files):
            y = self.bottom - 10 - 14 * (len(self.files) - 1 - number)
            out.append(text(self.left + 10, y, file, "file"))
        return out


def text(x: int, y: int, words: str, kind: str = "", anchor: str = "start") -> str:
    attributes = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y}"{attributes} text-anchor="{anchor}">{escape(words)}</text>'


def lane(top: int, height: int, label: tuple[str, ...], thread: tuple[str, ...]) -> list[str]:
    """A band for what one call does, and which thread does it."""
    out = [f'<rect class="lane" x="6" y="{top}" width="{WIDTH - 12}" height="{height}" rx="8"/>']
    out += [text(18, top + 26 + 17 * number, line, "label") for number, line in enumerate(label)]
    start = top + 30 + 17 * len(label)
    return out + [text(18, start + 14 * number, line, "thread") for number, line in enumerate(thread)]


def arrow(*points: tuple[int, int]) -> str:
    return f'<polyline class="arrow" points="{" ".join(f"{x},{y}" for x, y in points)}"/>'


def across(start: Box, end: Box, y: int | None = None) -> str:
    """From the side of a box to the side of another in the same lane."""
    y = start.top + 52 if y is None else y
    if start.left < end.left:
        return arrow((start.left + COLUMN, y), (end.left - 2, y))
    return arrow((start.left, y), (end.left + COLUMN + 2, y))


OPEN = (
    Box(0, 18, "Check the spec", ("types, windows and", "the predicate"), ("semantics/spec.py",)),
    Box(
        1,
        18,
        "Split the predicate",
        ("into what an index can", "serve, and the rest"),
        ("semantics/analysis.py",),
    ),
    Box(2, 18, "Choose the plan", ("topology, windows,", "nodes: frozen data"), ("plan/choose.py",)),
    Box(3, 18, "Write the code", ("typed source for this", "predicate"), ("codegen/programs.py",)),
    Box(4, 18, "Make the windows", ("and compile all that a", "push may call"), ("index/build.py",)),
)
CHECK = Box(
    0,
    144,
    "Check the batch",
    ("schema and time column;", "a bad one changes nothing"),
    ("engine/intake.py",),
    number=1,
)
LATE = Box(1, 144, "Find late rows", ("and set them aside",), ("engine/admission.py",), number=2)
GATHER = Box(
    2,
    144,
    "Join now, or gather",
    ("small pushes, if results", "may wait (latency=)"),
    ("engine/admission.py",),
    number=3,
)
PREPARE = Box(
    3,
    144,
    "Number, prepare",
    ("row ids; arrays of times,", "keys and bounds"),
    ("engine/intake.py",),
    number=4,
)
KEEP = Box(
    4, 144, "Keep the row", ("its columns, for results", "and residuals"), ("engine/rows.py",), number=5
)
LATE_ROWS = Box(0, 284, "Late rows", ("until they are taken",), ("engine/rows.py",), height=216, store=True)
PUSHED_ROWS = Box(
    1,
    284,
    "Pushed rows",
    ("all columns, by row id,", "while a window or a", "result needs them"),
    ("engine/rows.py",),
    height=216,
    store=True,
)
SETTLE = Box(
    4,
    284,
    "Wait until settled",
    ("only for row windows", "and sorted output"),
    ("topologies/settling.py",),
    number=6,
)
PROBE = Box(3, 284, "Probe", ("the other side's window", "for partners"), ("index/probing.py",), number=7)
INSERT = Box(
    2,
    284,
    "Insert, expire",
    ("add to the own window,", "drop what is out of reach"),
    ("topologies/three_step.py",),
    number=8,
)
WINDOWS = Box(
    2, 412, "Two windows", ("tuples, by scan or index",), ("index/window.py",), height=88, store=True
)
LATE_CALL = Box(0, 550, "join.late(side)", ("returns the late rows",), ("engine/join.py",))
BUILD = Box(
    1, 550, "Build result rows", ("read the columns of both", "rows, once"), ("engine/results.py",), number=10
)
BUFFER = Box(
    3,
    550,
    "Result buffer",
    ("pairs of row ids, at most", "max_results of them"),
    ("engine/results.py",),
    number=9,
    store=True,
)
STEPS = (CHECK, LATE, GATHER, PREPARE, KEEP, SETTLE, PROBE, INSERT, BUFFER, BUILD)
BOXES = (*OPEN, *STEPS, LATE_ROWS, PUSHED_ROWS, WINDOWS, LATE_CALL)


def drawing() -> str:
    """The whole SVG."""
    parts = [
        *lane(6, 120, ("open_join()", "once"), ("calling thread",)),
        *lane(132, 120, ("push()",), ("calling thread",)),
        *lane(
            272,
            240,
            ("step", "(a topology)"),
            ("three_step: calling", "thread; others:", "their own threads"),
        ),
        *lane(538, 120, ("poll()",), ("any thread",)),
    ]
    for box in BOXES:
        parts += box.svg()
    parts += [across(first, second) for first, second in itertools.pairwise(OPEN)]
    chain = (CHECK, LATE, GATHER, PREPARE, KEEP)
    parts += [across(first, second) for first, second in itertools.pairwise(chain)]
    parts += [
        arrow(
            (LATE.middle - 30, LATE.bottom),
            (LATE.middle - 30, 257),
            (LATE_ROWS.middle, 257),
            (LATE_ROWS.middle, 282),
        ),
        arrow(
            (KEEP.middle - 40, KEEP.bottom),
            (KEEP.middle - 40, 261),
            (PUSHED_ROWS.middle, 261),
            (PUSHED_ROWS.middle, 282),
        ),
        arrow((KEEP.middle, KEEP.bottom), (KEEP.middle, SETTLE.top - 2)),
        text(KEEP.middle + 8, 265, "tuples", "note"),
        text(PUSHED_ROWS.middle + 8, 275, "rows", "note"),
        across(SETTLE, PROBE),
        across(PROBE, INSERT),
        arrow((INSERT.middle, INSERT.bottom), (INSERT.middle, WINDOWS.top - 2)),
        arrow((PROBE.middle - 50, PROBE.bottom), (PROBE.middle - 50, 456), (WINDOWS.left + COLUMN + 2, 456)),
        text(PROBE.middle - 44, 450, "read", "note"),
        arrow((PROBE.middle + 20, PROBE.bottom), (PROBE.middle + 20, BUFFER.top - 2)),
        text(PROBE.middle + 28, 450, "pairs of", "note"),
        text(PROBE.middle + 28, 464, "row ids", "note"),
        arrow((LATE_ROWS.middle, LATE_ROWS.bottom), (LATE_ROWS.middle, LATE_CALL.top - 2)),
        arrow((PUSHED_ROWS.middle, PUSHED_ROWS.bottom), (PUSHED_ROWS.middle, BUILD.top - 2)),
        across(BUFFER, BUILD),
        arrow((BUILD.middle, BUILD.bottom), (BUILD.middle, HEIGHT - 24)),
        text(BUILD.middle, HEIGHT - 8, "result batches (Arrow)", "title", "middle"),
    ]
    body = "\n".join(f"  {part}" for part in parts)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">
  <title>What happens to the rows of a push</title>
  <style>{STYLE}  </style>
  <defs>
    <marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">
      <path d="M0,0 L10,5 L0,10 z" fill="#424a53"/>
    </marker>
  </defs>
  <rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>
{body}
</svg>
"""
