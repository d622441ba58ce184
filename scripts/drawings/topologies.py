"""How each topology spreads a join over cores: one drawing for each, in the same colours and with the same symbols.

Blue cells are left tuples, orange ones right tuples, green is what is compared or found.
"""

from __future__ import annotations

from scripts.drawings.canvas import Canvas

WIDTH = 880


def three_step() -> str:
    canvas = Canvas("Three steps: probe, insert, expire, in the thread that pushes", WIDTH, 300)
    canvas.rect("panel", 150, 20, 600, 196)
    canvas.text(450, 42, "the thread that pushes", "bold", "middle")
    canvas.text(170, 82, "left window", "left-ink")
    canvas.cells("left", 280, 66, 14)
    canvas.text(170, 182, "right window", "right-ink")
    canvas.cells("right", 280, 166, 14)
    canvas.cells("left", 84, 116, 1)
    canvas.text(72, 132, "a left tuple", "muted small", "end")
    canvas.arrow((110, 127), (400, 127), (400, 164), colour="hit-")
    canvas.text(410, 134, "1  probe the other window", "hit-ink")
    canvas.arrow((95, 114), (95, 77), (160, 77), colour="left-")
    canvas.arrow((256, 77), (276, 77), colour="left-")
    canvas.text(52, 98, "2  insert", "left-ink", "middle")
    canvas.arrow((646, 177), (706, 177), colour="right-")
    canvas.text(736, 208, "3  expire what is out of reach", "right-ink", "end")
    canvas.arrow((750, 127), (800, 127), colour="hit-")
    canvas.lines(806, 124, ("pairs, when", "push returns"), "hit-ink small")
    for number in range(3):
        canvas.box(230 + 160 * number, 244, 140, 36, f"thread {number + 1}")
        canvas.arrow((300 + 160 * number, 218), (300 + 160 * number, 242), dashed=True)
    canvas.text(214, 267, "a large probe is shared", "muted small", "end")
    return canvas.svg()


def celljoin() -> str:
    canvas = Canvas("CellJoin: every core scans an equal part of the window", WIDTH, 270)
    canvas.box(24, 56, 150, 64, "driver", "owns both windows")
    canvas.cells("left", 40, 26, 3)
    canvas.text(128, 42, "new tuples", "muted small")
    canvas.text(226, 48, "the other side's window, cut anew for every batch", "right-ink")
    canvas.cells("right", 226, 62, 20)
    canvas.arrow((176, 84), (222, 74), colour="left-")
    for number, count in enumerate((7, 7, 6)):
        start = 226 + 26 * 7 * number
        end = start + 26 * count - 4
        canvas.add(f'<path class="arrow" d="M{start},92 v8 H{end} v-8"/>')
        canvas.arrow(((start + end) / 2, 102), ((start + end) / 2, 130))
        canvas.box((start + end) / 2 - 70, 132, 140, 48, f"core {number}", "scans its part")
        canvas.arrow(((start + end) / 2, 182), ((start + end) / 2, 208), colour="hit-")
    canvas.rect("panel", 226, 210, 516, 36)
    canvas.text(484, 233, "the driver waits for all cores, then stores the new tuples", "", "middle")
    canvas.arrow((744, 228), (800, 228), colour="hit-")
    canvas.text(806, 233, "pairs", "hit-ink")
    return canvas.svg()


def scalejoin() -> str:
    canvas = Canvas("ScaleJoin: every worker sees every tuple, and stores every n-th", WIDTH, 300)
    for number, (side, name) in enumerate(
        (("left", "source a"), ("left", "source b"), ("right", "source c"))
    ):
        y = 62 + 66 * number
        canvas.text(20, y + 16, name, f"{side}-ink")
        canvas.cells(side, 84, y, 2)
        canvas.arrow((140, y + 11), (186, 138 + 6 * (number - 1)), colour=f"{side}-")
    canvas.rect("panel", 190, 84, 216, 106)
    canvas.text(298, 106, "gate: one sorted list", "bold", "middle")
    for number, side in enumerate(("left", "right", "left", "left", "right", "left", "right")):
        canvas.cells(side, 204 + 27 * number, 120, 1, words=str(number))
    canvas.text(298, 172, "read as far as it is ready", "muted small", "middle")
    stored = ((0, "left", "left", "right"), (1, "right", "right", ""), (2, "left", "left", ""))
    for number, (_, *sides) in enumerate(stored):
        y = 30 + 84 * number
        canvas.arrow((408, 138), (470, y + 34))
        canvas.rect("box", 474, y, 250, 68)
        canvas.text(488, y + 24, f"worker {number}", "bold")
        canvas.text(488, y + 50, "stores every third", "muted small")
        for place, side in enumerate(side for side in sides if side):
            canvas.cells(side, 612 + 27 * place, y + 22, 1, words=str(number + 3 * place))
        canvas.arrow((726, y + 34), (782, 148), colour="hit-")
    canvas.lines(790, 144, ("pairs,", "in order"), "hit-ink")
    canvas.text(
        440,
        284,
        "A worker compares every tuple it reads with the tuples that it has stored.",
        "muted",
        "middle",
    )
    return canvas.svg()


def panjoin() -> str:
    canvas = Canvas("PanJoin: the window is a chain of subwindows, dealt to the workers in turn", WIDTH, 300)
    canvas.text(20, 42, "right window", "right-ink bold")
    canvas.text(132, 26, "oldest", "muted small")
    canvas.text(780, 26, "newest", "muted small", "end")
    for number in range(4):
        x = 132 + 166 * number
        canvas.rect("panel", x, 34, 152, 56)
        canvas.text(x + 10, 53, f"subwindow {number}" + (", open" if number == 3 else ""), "small bold")
        canvas.cells("right", x + 10, 60, 5 if number < 3 else 2)
        worker = number % 3
        canvas.arrow((x + 76, 92), (200 + 220 * worker, 186), colour="right-", dashed=True)
    canvas.arrow((128, 62), (60, 62), colour="right-")
    canvas.text(92, 82, "expires whole", "muted small", "middle")
    for number, owned in enumerate(("subwindows 0 and 3", "subwindow 1", "subwindow 2")):
        canvas.box(120 + 220 * number, 188, 160, 50, f"worker {number}", owned)
        canvas.arrow((282 + 220 * number, 213), (302 + 220 * number, 213), colour="hit-")
        canvas.text(306 + 220 * number, 217, "pairs", "hit-ink small")
        canvas.arrow(
            (45, 226), (45, 258), (200 + 220 * number, 258), (200 + 220 * number, 240), colour="left-"
        )
    canvas.cells("left", 20, 202, 2)
    canvas.text(20, 194, "left batch", "left-ink")
    note = "Every worker probes its subwindows with the batch. A full one never changes: its index is packed."
    canvas.text(440, 286, note, "muted small", "middle")
    return canvas.svg()


def chain(title: str, note: str) -> Canvas:
    """Three nodes in a row, with left tuples coming from the left and right tuples from the right."""
    canvas = Canvas(title, WIDTH, 290)
    for number in range(3):
        canvas.rect("panel", 140 + 210 * number, 50, 180, 150)
        canvas.text(230 + 210 * number, 74, f"node {number}", "bold", "middle")
    canvas.text(20, 100, "left", "left-ink bold")
    canvas.text(860, 170, "right", "right-ink bold", "end")
    canvas.text(440, 262, note, "muted", "middle")
    return canvas


def handshake() -> str:
    canvas = chain(
        "Handshake join: both windows lie along the chain and flow past each other",
        "Tuples rest on a node until newer ones push them on. Two tuples are compared on the node where they meet.",
    )
    canvas.text(140, 36, "newest left", "muted small")
    canvas.text(740, 36, "oldest left", "muted small", "end")
    canvas.text(140, 222, "oldest right", "muted small")
    canvas.text(740, 222, "newest right", "muted small", "end")
    for number in range(3):
        x = 140 + 210 * number
        canvas.cells("left", x + 34, 90, 4)
        canvas.cells("right", x + 34, 146, 4)
        canvas.add(f'<path class="hit-arrow" d="M{x + 70},114 L{x + 97},144 M{x + 97},114 L{x + 70},144"/>')
        canvas.arrow((x - 28, 101), (x - 2, 101), colour="left-")
        canvas.arrow((x + 208, 157), (x + 182, 157), colour="right-")
    canvas.cells("left", 62, 90, 1)
    canvas.cells("right", 790, 146, 1)
    canvas.arrow((742, 101), (780, 101), colour="left-")
    canvas.text(786, 106, "expired", "muted small")
    canvas.arrow((138, 157), (96, 157), colour="right-")
    canvas.text(90, 162, "expired", "muted small", "end")
    return canvas.svg()


def low_latency() -> str:
    canvas = chain(
        "Low-latency handshake join: tuples pass all nodes at once, and a copy rests on one of them",
        "A tuple meets every stored tuple on its way through. Its copy stays on its home node until it expires.",
    )
    for number, (left, right) in enumerate(((2, 3), (3, 2), (2, 2))):
        x = 140 + 210 * number
        canvas.cells("left", x + 34, 108, left)
        canvas.cells("right", x + 34, 150, right)
    canvas.arrow((88, 94), (746, 94), colour="left-")
    canvas.arrow((790, 186), (134, 186), colour="right-")
    canvas.cells("left", 62, 83, 1)
    canvas.cells("right", 792, 175, 1)
    canvas.text(754, 98, "passes", "left-ink small")
    canvas.cells("left dashed", 462, 108, 1)
    canvas.text(440, 222, "home of this left tuple: a copy rests here", "left-ink small", "middle")
    canvas.text(128, 190, "passes", "right-ink small", "end")
    return canvas.svg()
