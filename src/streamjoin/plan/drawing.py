"""A plan as a small picture: two streams, their windows, what joins them, and the results. Inline SVG.

It takes the plan as plain data (`Plan.to_dict`), so either engine's plan can be drawn, here and on a page. It has no
style and no script: text has the colour of its surroundings, so it suits light and dark ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

WIDTH, HEIGHT = 760, 250
COLOURS = {"left": "#3b82f6", "right": "#f97316"}
FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
TOPS = {"left": 34, "right": 138}  # of the windows
BOX = 82  # height of a window
CHARACTERS = {"title": 30, "line": 38, "on": 96}  # that fit


def plan_drawing(plan: Mapping[str, Any]) -> str:
    """The picture of a plan, as text of an `<svg>` element."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="100%" role="img" '
        f'font-family="{FONT}" font-size="12" fill="currentColor">',
        f"<title>{escape(_summary(plan))}</title>",
        _svg_text(WIDTH // 2, 18, str(plan["on"]), "on", anchor="middle", weight="600"),
    ]
    for side in ("left", "right"):
        parts += _stream(side, plan["windows"][side])
    parts += _meeting(plan)
    return "".join([*parts, "</svg>"])


def _summary(plan: Mapping[str, Any]) -> str:
    windows = " and ".join(f"{side} {plan['windows'][side]['window']}" for side in ("left", "right"))
    return f"{plan['how']} join on {plan['on']}; windows: {windows}; {plan['topology']}"


def _stream(side: str, window: Mapping[str, Any]) -> list[str]:
    """One side: tuples that arrive, and the window they wait in."""
    top, colour = TOPS[side], COLOURS[side]
    middle = top + BOX // 2
    parts = [_svg_text(12, top + 14, side, "title", weight="600", colour=colour)]
    for number, x in enumerate((18, 42, 58, 88, 116)):
        parts.append(
            f'<circle cx="{x}" cy="{middle}" r="5" fill="{colour}" fill-opacity="{0.35 + 0.15 * number:.2f}"/>'
        )
    parts.append(_arrow(126, middle, 160, middle, colour))
    parts.append(
        f'<rect x="164" y="{top}" width="258" height="{BOX}" rx="9" '
        f'fill="{colour}" fill-opacity="0.1" stroke="{colour}"/>'
    )
    lines = [(f"window: {window['window']}", "title", "600"), (_structure(window), "line", "400")]
    if window["keys"]:
        lines.append((f"key: {', '.join(window['keys'])}", "line", "400"))
    if window["residual"]:
        lines.append((f"then checked: {window['residual']}", "line", "400"))
    for number, (words, kind, weight) in enumerate(lines):
        parts.append(_svg_text(178, top + 20 + 18 * number, words, kind, weight=weight))
    return parts


def _structure(window: Mapping[str, Any]) -> str:
    if window["kind"] == "scan":
        return f"scan: {window['method']}"
    return f"{window['structure']} index" + (", or a scan" if window["kind"] == "adaptive" else "")


def _meeting(plan: Mapping[str, Any]) -> list[str]:
    """Where both windows meet, and what comes out."""
    top, height = 86, 82
    middle = top + height // 2
    workers = plan["workers"]
    parts = [
        _arrow(422, TOPS[side] + BOX // 2, 462, middle + shift, COLOURS[side])
        for side, shift in (("left", -12), ("right", 12))
    ]
    parts.append(
        f'<rect x="466" y="{top}" width="168" height="{height}" rx="9" fill="currentColor" fill-opacity="0.06" '
        'stroke="currentColor" stroke-opacity="0.5"/>'
    )
    spread = plan["routing"]["kind"] if plan["routing"] else None
    lines = [
        (plan["topology"] if spread is None else "Spark", "600"),
        (f"{workers} worker{'s' * (workers != 1)}" if spread is None else f"rows go by {spread}", "400"),
        (f"{plan['how']} join" + ("" if plan["keep"] == "all" else f", {plan['keep']}"), "400"),
    ]
    for number, (words, weight) in enumerate(lines):
        parts.append(_svg_text(550, top + 24 + 20 * number, words, "title", 24, "middle", weight))
    parts.append(_arrow(634, middle, 668, middle, "currentColor"))
    for number, x in enumerate((684, 706, 728)):
        opacity = 1 - 0.2 * number
        parts.append(
            f'<circle cx="{x}" cy="{middle - 5}" r="5" fill="{COLOURS["left"]}" fill-opacity="{opacity:.2f}"/>'
            f'<circle cx="{x}" cy="{middle + 5}" r="5" fill="{COLOURS["right"]}" fill-opacity="{opacity:.2f}"/>'
        )
    order = {"any": "as found", "punctuated": "with punctuations", "timestamp": "in time order"}[
        plan["order"]
    ]
    parts.append(_svg_text(706, middle + 34, "results", "line", anchor="middle", weight="600"))
    parts.append(_svg_text(706, middle + 50, order, "line", anchor="middle"))
    return parts


def _arrow(x: int, y: int, to_x: int, to_y: int, colour: str) -> str:
    """A line with a head at its end."""
    head = f"M{to_x - 7},{to_y - 4} L{to_x},{to_y} L{to_x - 7},{to_y + 4}"
    return (
        f'<path d="M{x},{y} C{(x + to_x) // 2},{y} {(x + to_x) // 2},{to_y} {to_x},{to_y} {head}" '
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
