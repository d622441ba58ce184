"""Two streams slide past each other: rows that are in the window at the same time, and satisfy the condition, light up.

Orders move to the right and payments to the left, both at one speed. A row is between the window's edges for as long as
the window lasts, so two rows are there together exactly if their times differ by at most the window. The drawing
repeats every PERIOD seconds. It begins at the moment STILL, and without animation shows that moment alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from scripts.drawings.canvas import Canvas

WIDTH, HEIGHT = 960, 330
EDGE_LEFT, EDGE_RIGHT = 230, 730
SPEED = 62.5  # pixels a second: a row crosses the window in 8 seconds
WINDOW = (EDGE_RIGHT - EDGE_LEFT) / SPEED
PERIOD = 24.0
STILL = 8.0
CHIP = 62  # the width of a row
LEFT_Y, RIGHT_Y, RESULT_Y = 84, 176, 262


@dataclass(frozen=True)
class Row:
    """A row that enters the window at `at`, in seconds from the beginning of a period."""

    at: float
    amount: float


ORDERS = (Row(0.5, 20.0), Row(3.5, 35.5), Row(7.5, 12.0), Row(11.5, 48.9), Row(16, 20.6), Row(20, 7.5))
PAYMENTS = (Row(2.5, 35.4), Row(5.5, 20.1), Row(10.5, 12.1), Row(14, 99.0), Row(17.5, 48.8), Row(21.5, 7.4))


def pairs() -> Iterator[tuple[Row, Row, float, float]]:
    """The pairs that match, and from when to when both are in the window."""
    for order in ORDERS:
        for payment in PAYMENTS:
            for turn in (-PERIOD, 0, PERIOD):  # the next period's rows meet the last ones of this period
                start, end = max(order.at, payment.at + turn), min(order.at, payment.at + turn) + WINDOW
                if start < end and abs(order.amount - payment.amount) <= 0.2:
                    yield order, payment, start % PERIOD, end - start


def place(row: Row, side: str, time: float) -> float:
    """The x of a row's middle `time` seconds after the beginning, in the turn that is nearest to the window."""
    since = (time - row.at + PERIOD / 2) % PERIOD - PERIOD / 2 if time - row.at < WINDOW else time - row.at
    return EDGE_LEFT + SPEED * since if side == "left" else EDGE_RIGHT - SPEED * since


def moving(attribute: str, start: float, end: float, at: float, seconds: float) -> str:
    """An animation that moves an attribute once in a period, beginning `at` seconds into it."""
    times = f"0;{seconds / PERIOD:.4f};1"
    return (
        f'<animate attributeName="{attribute}" values="{start:g};{end:g};{end:g}" keyTimes="{times}" '
        f'dur="{PERIOD:g}s" begin="{at - STILL - PERIOD:g}s" repeatCount="indefinite"/>'
    )


def shown(at: float, seconds: float, most: float = 1) -> str:
    """An animation that shows something for some seconds of a period, and hides it for the rest."""
    share = seconds / PERIOD
    times = f"0;{min(0.012, share / 4):.4f};{share * 0.94:.4f};{share:.4f};1"
    return (
        f'<animate attributeName="opacity" values="0;{most:g};{most:g};0;0" keyTimes="{times}" '
        f'dur="{PERIOD:g}s" begin="{at - STILL - PERIOD:g}s" repeatCount="indefinite"/>'
    )


def chip(canvas: Canvas, row: Row, side: str, lit: list[tuple[float, float]]) -> None:
    """A row that moves through the drawing, green while it has a partner in the window."""
    y = LEFT_Y if side == "left" else RIGHT_Y
    lead = (EDGE_LEFT + CHIP) / SPEED  # seconds from the drawing's edge to the window's
    way = lead + (WIDTH - EDGE_LEFT + CHIP) / SPEED
    sign = 1 if side == "left" else -1
    start = (EDGE_LEFT if side == "left" else EDGE_RIGHT) - sign * lead * SPEED
    values = f"{start:g} 0;{start + sign * way * SPEED:g} 0;{start + sign * way * SPEED:g} 0"
    canvas.add(f'<g transform="translate({place(row, side, STILL):g} 0)">')
    canvas.add(
        f'<animateTransform attributeName="transform" type="translate" values="{values}" '
        f'keyTimes="0;{way / PERIOD:.4f};1" dur="{PERIOD:g}s" begin="{row.at - lead - STILL - PERIOD:g}s" '
        'repeatCount="indefinite"/>'
    )
    canvas.rect(side, -CHIP / 2, y - 15, CHIP, 30)
    for at, seconds in lit:
        now = float((STILL - at) % PERIOD < seconds)
        canvas.add(f'<g opacity="{now:g}">{shown(at, seconds)}')
        canvas.rect("hit", -CHIP / 2, y - 15, CHIP, 30)
        canvas.add("</g>")
    canvas.text(0, y + 5, f"{row.amount}", "bold", "middle")
    canvas.add("</g>")


def bond(canvas: Canvas, order: Row, payment: Row, at: float, seconds: float) -> None:
    """The line between two rows that match, and the result row below while they are together."""
    first = EDGE_LEFT + SPEED * ((at - order.at) % PERIOD)
    second = EDGE_RIGHT - SPEED * ((at - payment.at) % PERIOD)
    since = (STILL - at) % PERIOD
    now = float(since < seconds)
    ends = (("x1", first, 1), ("x2", second, -1))
    still = {name: x + sign * SPEED * min(since, seconds) for name, x, sign in ends}
    moves = "".join(moving(name, x, x + sign * SPEED * seconds, at, seconds) for name, x, sign in ends)
    canvas.add(
        f'<line class="hit-arrow" x1="{still["x1"]:g}" x2="{still["x2"]:g}" y1="{LEFT_Y + 15}" '
        f'y2="{RIGHT_Y - 15}" opacity="{now:g}">{moves}{shown(at, seconds)}</line>'
    )


def result(canvas: Canvas, order: Row, payment: Row, at: float, slot: int) -> None:
    """A result row, which appears when the pair is found and stays for half of the period."""
    seconds, x = PERIOD / 2, EDGE_LEFT + 10 + slot % 3 * 164
    now = float((STILL - at) % PERIOD < seconds)
    canvas.add(f'<g opacity="{now:g}">{shown(at, seconds)}')
    canvas.rect("hit", x, RESULT_Y - 17, 152, 34)
    canvas.text(x + 76, RESULT_Y + 5, f"{order.amount} paid {payment.amount}", "bold", "middle")
    canvas.add("</g>")


def drawing() -> str:
    canvas = Canvas(
        "Two streams slide past each other, and matching rows in the window light up", WIDTH, HEIGHT
    )
    canvas.rect("panel", EDGE_LEFT, 36, EDGE_RIGHT - EDGE_LEFT, 188)
    canvas.text((EDGE_LEFT + EDGE_RIGHT) / 2, 27, "the window", "bold", "middle")
    found = sorted(pairs(), key=lambda pair: pair[2])
    for pair in found:
        bond(canvas, *pair)
    for side, rows, own in (("left", ORDERS, 0), ("right", PAYMENTS, 1)):
        for row in rows:
            chip(canvas, row, side, [(at, seconds) for *both, at, seconds in found if both[own] is row])
    canvas.text(20, LEFT_Y - 28, "orders →", "left-ink bold")
    canvas.text(WIDTH - 20, RIGHT_Y - 28, "← payments", "right-ink bold", "end")
    canvas.text(20, RESULT_Y + 5, "results, each once", "hit-ink bold")
    for slot, (order, payment, at, _) in enumerate(found):
        result(canvas, order, payment, at, slot)
    caption = "A pair lights up when both rows are in the window and abs(left.amount - right.amount) <= 0.2"
    canvas.text(WIDTH / 2, HEIGHT - 16, caption, "muted", "middle")
    return canvas.svg()
