"""Which part of the package may import which. A part may also import what is further along its arrows."""

from __future__ import annotations

from scripts.drawings.canvas import Canvas

BOX, TALL = 112, 44
# Part -> the middle of its box. `public` is `streamjoin/__init__.py`, the public names.
PLACES = {
    "cli": (76, 104), "spark": (226, 44), "hardware": (226, 164), "public": (376, 44), "engine": (526, 44),
    "topologies": (676, 44), "index": (826, 44), "lazy": (976, 44), "plan": (826, 124), "codegen": (676, 124),
    "semantics": (526, 204), "kernels": (676, 204), "jit": (826, 204),
}  # fmt: skip
ARROWS = (
    ("cli", "spark"), ("cli", "hardware"), ("spark", "public"), ("public", "engine"), ("engine", "topologies"),
    ("topologies", "index"), ("index", "lazy"), ("index", "plan"), ("plan", "codegen"), ("codegen", "semantics"),
    ("codegen", "kernels"), ("kernels", "jit"), ("hardware", "semantics"), ("hardware", "jit"),
)  # fmt: skip
# Arrows that are not straight, by the points between.
BENDS = {("hardware", "jit"): ((226, 256), (826, 256)), ("hardware", "semantics"): ((300, 164), (300, 204))}


def drawing() -> str:
    canvas = Canvas("Which part of streamjoin may import which", 1052, 276)
    for start, end in ARROWS:
        (x, y), (to_x, to_y) = PLACES[start], PLACES[end]
        bend = BENDS.get((start, end), ())
        last = bend[-1] if bend else (x, y)
        canvas.arrow((x, y), *bend, edge(last, (to_x, to_y)))
    for part, (x, y) in PLACES.items():
        kind = {"public": "hit", "semantics": "left", "kernels": "right"}.get(part, "box")
        canvas.rect(kind, x - BOX / 2, y - TALL / 2, BOX, TALL)
        canvas.text(x, y + 5, {"public": "public names"}.get(part, part), "bold", "middle")
    return canvas.svg()


def edge(start: tuple[float, float], end: tuple[float, float]) -> tuple[float, float]:
    """Where a line from `start` to the middle of a box meets its edge."""
    across, down = end[0] - start[0], end[1] - start[1]
    share = min(
        BOX / 2 / abs(across) if across else 1.0,
        TALL / 2 / abs(down) if down else 1.0,
    )
    return end[0] - across * share, end[1] - down * share
