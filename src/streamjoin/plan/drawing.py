"""A plan as a small picture: two streams, their windows, what joins them, and the results. Inline SVG.

It takes the plan as plain data (`Plan.to_dict`), so either engine's plan can be drawn, here and on a page. It has no
style and no script: text has the colour of its surroundings, so it suits light and dark ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

WIDTH, HEIGHT = 760, 250
TALL_WIDTH, TALL_HEIGHT = 340, 400  # of the picture for narrow pages
COLOURS = {"left": "#3b82f6", "right": "#f97316"}
FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
BOX = 82  # height of a window, and of the box where both meet
CHARACTERS = {"title": 30, "line": 38, "on": 96, "tall on": 46}  # that fit


def plan_drawing(plan: Mapping[str, Any]) -> str:
    """The picture of a plan, as text of an `<svg>` element: the streams flow from left to right."""
    parts = [_svg_text(WIDTH // 2, 18, str(plan["on"]), "on", anchor="middle", weight="600")]
    for side, top in (("left", 34), ("right", 138)):
        colour, middle = COLOURS[side], top + BOX // 2
        parts.append(_svg_text(12, top + 14, side, "title", weight="600", colour=colour))
        parts += _tuples(colour, (18, 42, 58, 88, 116), middle)
        parts.append(_arrow(126, middle, 160, middle, colour))
        parts += _window_box(plan["windows"][side], 164, top, 258, colour)
    middle = 86 + BOX // 2
    parts += [_arrow(422, 75, 462, middle - 12, COLOURS["left"])]
    parts += [_arrow(422, 179, 462, middle + 12, COLOURS["right"])]
    parts += _meeting(plan, 466, 86)
    parts.append(_arrow(634, middle, 668, middle, "currentColor"))
    parts += _results(plan, (684, 706, 728), middle)
    return _svg(plan, WIDTH, HEIGHT, parts)


def tall_drawing(plan: Mapping[str, Any]) -> str:
    """The same picture for narrow pages: the left stream comes from above and the right one from below."""
    parts = [_svg_text(TALL_WIDTH // 2, 16, str(plan["on"]), "tall on", anchor="middle", weight="600")]
    for side, names, top, row in (("left", 48, 60, 43), ("right", 392, 290, 387)):
        parts.append(_svg_text(14, names, side, "title", weight="600", colour=COLOURS[side]))
        parts += _tuples(COLOURS[side], (60, 84, 100, 130, 158), row)
        parts += _window_box(plan["windows"][side], 4, top, 332, COLOURS[side])
    middle = 175 + BOX // 2
    parts += [_upright_arrow(100, 142, 171, COLOURS["left"]), _upright_arrow(100, 290, 261, COLOURS["right"])]
    parts += _meeting(plan, 16, 175)
    parts.append(_arrow(184, middle, 218, middle, "currentColor"))
    parts += _results(plan, (246, 268, 290), middle)
    return _svg(plan, TALL_WIDTH, TALL_HEIGHT, parts)


def _svg(plan: Mapping[str, Any], width: int, height: int, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="100%" role="img" '
        f'font-family="{FONT}" font-size="12" fill="currentColor">'
        f"<title>{escape(_summary(plan))}</title>{''.join(parts)}</svg>"
    )


def _summary(plan: Mapping[str, Any]) -> str:
    windows = " and ".join(f"{side} {plan['windows'][side]['window']}" for side in ("left", "right"))
    return f"{plan['how']} join on {plan['on']}; windows: {windows}; {plan['topology']}"


def _tuples(colour: str, xs: Sequence[int], y: int) -> list[str]:
    """Tuples that arrive, the newest the palest."""
    return [
        f'<circle cx="{x}" cy="{y}" r="5" fill="{colour}" fill-opacity="{0.35 + 0.15 * number:.2f}"/>'
        for number, x in enumerate(xs)
    ]


def _window_box(window: Mapping[str, Any], x: int, top: int, width: int, colour: str) -> list[str]:
    """The window that tuples wait in."""
    parts = [
        f'<rect x="{x}" y="{top}" width="{width}" height="{BOX}" rx="9" '
        f'fill="{colour}" fill-opacity="0.1" stroke="{colour}"/>'
    ]
    lines = [(f"window: {window['window']}", "title", "600"), (_structure(window), "line", "400")]
    if window["keys"]:
        lines.append((f"key: {', '.join(window['keys'])}", "line", "400"))
    if window["residual"]:
        lines.append((f"then checked: {window['residual']}", "line", "400"))
    for number, (words, kind, weight) in enumerate(lines):
        parts.append(_svg_text(x + 14, top + 20 + 18 * number, words, kind, weight=weight))
    return parts


def _structure(window: Mapping[str, Any]) -> str:
    if window["kind"] == "scan":
        return f"scan: {window['method']}"
    return f"{window['structure']} index" + (", or a scan" if window["kind"] == "adaptive" else "")


def _meeting(plan: Mapping[str, Any], x: int, top: int) -> list[str]:
    """Where both windows meet."""
    workers = plan["workers"]
    parts = [
        f'<rect x="{x}" y="{top}" width="168" height="{BOX}" rx="9" fill="currentColor" fill-opacity="0.06" '
        'stroke="currentColor" stroke-opacity="0.5"/>'
    ]
    spread = plan["routing"]["kind"] if plan["routing"] else None
    lines = [
        (plan["topology"] if spread is None else "Spark", "600"),
        (f"{workers} worker{'s' * (workers != 1)}" if spread is None else f"rows go by {spread}", "400"),
        (f"{plan['how']} join" + ("" if plan["keep"] == "all" else f", {plan['keep']}"), "400"),
    ]
    for number, (words, weight) in enumerate(lines):
        parts.append(_svg_text(x + 84, top + 24 + 20 * number, words, "title", 24, "middle", weight))
    return parts


def _results(plan: Mapping[str, Any], xs: Sequence[int], middle: int) -> list[str]:
    """What comes out: pairs."""
    parts = []
    for number, x in enumerate(xs):
        opacity = 1 - 0.2 * number
        parts.append(
            f'<circle cx="{x}" cy="{middle - 5}" r="5" fill="{COLOURS["left"]}" fill-opacity="{opacity:.2f}"/>'
            f'<circle cx="{x}" cy="{middle + 5}" r="5" fill="{COLOURS["right"]}" fill-opacity="{opacity:.2f}"/>'
        )
    order = {"any": "as found", "punctuated": "with punctuations", "timestamp": "in time order"}[
        plan["order"]
    ]
    parts.append(_svg_text(xs[1], middle + 34, "results", "line", anchor="middle", weight="600"))
    parts.append(_svg_text(xs[1], middle + 50, order, "line", anchor="middle"))
    return parts


def _arrow(x: int, y: int, to_x: int, to_y: int, colour: str) -> str:
    """A line with a head at its end."""
    head = f"M{to_x - 7},{to_y - 4} L{to_x},{to_y} L{to_x - 7},{to_y + 4}"
    return (
        f'<path d="M{x},{y} C{(x + to_x) // 2},{y} {(x + to_x) // 2},{to_y} {to_x},{to_y} {head}" '
        f'fill="none" stroke="{colour}" stroke-width="1.5"/>'
    )


def _upright_arrow(x: int, y: int, to_y: int, colour: str) -> str:
    """A line straight up or down, with a head at its end."""
    back = to_y - 7 if to_y > y else to_y + 7
    return (
        f'<path d="M{x},{y} L{x},{to_y} M{x - 4},{back} L{x},{to_y} L{x + 4},{back}" '
        f'fill="none" stroke="{colour}" stroke-width="1.5"/>'
    )


def _svg_text(
    x: int,
    y: int,
    words: str,
    kind: str,
    most: int = 0,
    anchor: str = "start",
    weight: str = "400",
    colour: str = "currentColor",
) -> str:
    """A line of text, shortened to what fits, with all of it as its title."""
    most = most or CHARACTERS[kind]
    words = " ".join(words.split())
    short = words if len(words) <= most else f"{words[: most - 1]}…"
    title = "" if short == words else f"<title>{escape(words)}</title>"
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-weight="{weight}" fill="{colour}">'
        f"{title}{escape(short)}</text>"
    )
