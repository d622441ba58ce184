"""A small SVG writer with the colours that all drawings share: left is blue, right is orange, a match is green.

A drawing is an image of its own, so it brings its background and both palettes, and follows the reader's system.
"""

from __future__ import annotations

from html import escape

LIGHT = """
    .bg { fill: #ffffff; } .panel { fill: #f4f6fb; stroke: #d5dbe7; } .box { fill: #ffffff; stroke: #94a3b8; }
    text { fill: #1f2937; } .muted { fill: #64748b; }
    .left { fill: #dbe6ff; stroke: #3f6fd8; } .right { fill: #ffe6cc; stroke: #d9730d; }
    .hit { fill: #d1f3dc; stroke: #15803d; } .faint { fill: none; stroke: #cbd5e1; }
    .left-ink { fill: #2b56b5; } .right-ink { fill: #a8540a; } .hit-ink { fill: #166534; }
    .arrow { stroke: #64748b; } .left-arrow { stroke: #3f6fd8; } .right-arrow { stroke: #d9730d; }
    .hit-arrow { stroke: #15803d; } .head { fill: #64748b; } .left-head { fill: #3f6fd8; }
    .right-head { fill: #d9730d; } .hit-head { fill: #15803d; }"""
DARK = """
    .bg { fill: #14171f; } .panel { fill: #1d222d; stroke: #343c4c; } .box { fill: #262d3a; stroke: #64748b; }
    text { fill: #e5e7eb; } .muted { fill: #9aa5b8; }
    .left { fill: #22365f; stroke: #7ea6ff; } .right { fill: #53341a; stroke: #f5a35c; }
    .hit { fill: #1b4630; stroke: #5ed693; } .faint { fill: none; stroke: #3b4456; }
    .left-ink { fill: #a9c4ff; } .right-ink { fill: #ffc48f; } .hit-ink { fill: #8ae8b1; }
    .arrow { stroke: #94a3b8; } .left-arrow { stroke: #7ea6ff; } .right-arrow { stroke: #f5a35c; }
    .hit-arrow { stroke: #5ed693; } .head { fill: #94a3b8; } .left-head { fill: #7ea6ff; }
    .right-head { fill: #f5a35c; } .hit-head { fill: #5ed693; }"""
FORMS = """
    text { font: 14px system-ui, 'Segoe UI', Helvetica, Arial, sans-serif; }
    .bold { font-weight: 650; } .small { font-size: 12px; }
    .panel, .box, .left, .right, .hit { stroke-width: 1.3; } .dashed { stroke-dasharray: 5 4; }
    .arrow, .left-arrow, .right-arrow, .hit-arrow { fill: none; stroke-width: 1.8; }"""
COLOURS = ("", "left-", "right-", "hit-")  # of arrows


class Canvas:
    """A drawing of `width` x `height`. Methods draw in the order they are called."""

    def __init__(self, title: str, width: int, height: int):
        self.title, self.width, self.height = title, width, height
        self.parts: list[str] = []

    def add(self, part: str) -> None:
        self.parts.append(part)

    def rect(self, kind: str, x: float, y: float, width: float, height: float, inner: str = "") -> None:
        shape = f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"'
        self.add(f"{shape}>{inner}</rect>" if inner else f"{shape}/>")

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> None:
        self.add(f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>')

    def lines(
        self, x: float, y: float, lines: tuple[str, ...], kind: str = "", anchor: str = "start"
    ) -> None:
        for number, line in enumerate(lines):
            self.text(x, y + 17 * number, line, kind, anchor)

    def box(self, x: float, y: float, width: float, height: float, *lines: str, kind: str = "box") -> None:
        """A box with centred lines, the first one bold."""
        self.rect(kind, x, y, width, height)
        top = y + height / 2 - 8.5 * len(lines) + 13
        for number, line in enumerate(lines):
            style = "muted small" if number else "bold"
            self.text(x + width / 2, top + 17 * number, line, style, "middle")

    def cells(self, kind: str, x: float, y: float, count: int, width: float = 22, words: str = "") -> None:
        """A row of tuples; `words` are their names, one character each."""
        for number in range(count):
            self.rect(kind, x + number * (width + 4), y, width, 22)
        for number, word in enumerate(words):
            self.text(x + number * (width + 4) + width / 2, y + 16, word, f"{kind}-ink small bold", "middle")

    def arrow(self, *points: tuple[float, float], colour: str = "", dashed: bool = False) -> None:
        """A line through the points with a head at the last; `colour` is "", "left-", "right-" or "hit-"."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        style = f"{colour}arrow{' dashed' if dashed else ''}"
        self.add(f'<polyline class="{style}" points="{path}" marker-end="url(#{colour}head)"/>')

    def svg(self) -> str:
        markers = "\n".join(
            f'    <marker id="{colour}head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            f'orient="auto"><path class="{colour}head" d="M0,0 L10,5 L0,10 z"/></marker>'
            for colour in COLOURS
        )
        body = "\n".join(f"  {part}" for part in self.parts)
        size = f'viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}"'
        return f"""<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">
  <title>{escape(self.title)}</title>
  <style>{FORMS}{LIGHT}
    @media (prefers-color-scheme: dark) {{{DARK}
    }}
  </style>
  <defs>
{markers}
  </defs>
  <rect class="bg" width="{self.width}" height="{self.height}" rx="10"/>
{body}
</svg>
"""
