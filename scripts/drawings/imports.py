"""Which part of the package may import which. A part may also import what is further along its arrows."""

from __future__ import annotations

from scripts.drawings.canvas import Canvas

BOX, TALL = 112, 44
# Part -> the middle of its box. `public` is `streamjoin/__init__.py`, the public names.
PLACES = {
    "cli": (76, 168), "spark": (226, 108), "hardware": (226, 228), "public": (376, 108), "engine": (526, 108),
    "topologies": (676, 108), "index": (826, 108), "lazy": (976, 108), "plan": (826, 188), "codegen": (676, 188),
    "semantics": (526, 268), "page": (676, 36), "kernels": (676, 268), "jit": (826, 268), "daemon": (226, 36),
}  # fmt: skip
ARROWS = (
    ("cli", "spark"), ("cli", "hardware"), ("spark", "public"), ("public", "engine"), ("engine", "topologies"),
    ("topologies", "index"), ("index", "lazy"), ("index", "plan"), ("plan", "codegen"), ("codegen", "semantics"),
    ("codegen", "kernels"), ("kernels", "jit"), ("hardware", "semantics"), ("hardware", "jit"), ("engine", "page"),
    ("page", "plan"), ("spark", "daemon"),
)  # fmt: skip
# Arrows that are not straight, by the points between.
BENDS = {
    ("hardware", "jit"): ((226, 320), (826, 320)), ("hardware", "semantics"): ((300, 228), (300, 268)),
    ("engine", "page"): ((526, 36),), ("page", "plan"): ((901, 36), (901, 188)),
}  # fmt: skip


def drawing() -> str:
    canvas = Canvas("Which part of streamjoin may import which", 1052, 340)
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
