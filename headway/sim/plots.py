"""Plots as inline SVG: lines over time, curves over a logarithm, bars. No scripts; a tooltip is a `title`.

Colours are CSS classes of the page (`c0` to `c7`), so that a plot reads on white and on black.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from headway.sim.said import lasting

WIDTH, HEIGHT = 640, 240
LEFT, RIGHT, TOP, BOTTOM = 54, 14, 12, 30
COLOURS = 8
DAY = 86_400.0
STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, DAY, 2 * DAY, 7 * DAY)
DECADES = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 6 * 3600.0, DAY, 7 * DAY)
"""What people know waiting times by; a logarithmic axis of seconds has its marks here."""
Text = Callable[[float], str]


class Series(NamedTuple):
    """A line: its name, its points, and which colour it has."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int


class Axis:
    """Marks, and where along it a value lies (0 to 1)."""

    def __init__(self, marks: list[tuple[float, str]], place: Callable[[float], float]) -> None:
        self.marks = marks
        self.place = place


# ── axes ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def time_axis(until: float, *, marks: int = 8) -> Axis:
    """Simulated time from 0 on: minutes, hours, or days of a week that begins on a Monday."""
    step = next((step for step in STEPS if until / step <= marks), STEPS[-1])
    found = [(at, _moment(at, step)) for at in _range(0.0, until, step)]
    return Axis(found, lambda at: at / until)


def _moment(at: float, step: float) -> str:
    if step >= DAY:
        return f"{('Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun')[int(at // DAY) % 7]} {int(at // DAY) + 1}"
    if step >= 1800:
        return f"{int(at % DAY // 3600):02}:{int(at % 3600 // 60):02}"
    return lasting(at)


def linear_axis(least: float, most: float, text: Text, *, marks: int = 5) -> Axis:
    """Evenly, with round marks."""
    span = most - least or 1.0
    rough = span / marks
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * one for one in (1, 2, 2.5, 5, 10) if power * one >= rough * 0.999)
    first = math.ceil(least / step - 1e-9) * step
    return Axis([(at, text(at)) for at in _range(first, most, step)], lambda value: (value - least) / span)


def waiting_axis(most: float) -> Axis:
    """Seconds that somebody waits, by their logarithm; what is below 10 ms is none."""
    low, high = 0.01, max(most, 1.0) * 1.1
    width = math.log(high / low)
    found = [(at, lasting(at)) for at in DECADES if low <= at <= high]
    return Axis(found, lambda value: math.log(max(value, low) / low) / width)


def _range(first: float, last: float, step: float) -> list[float]:
    return [first + number * step for number in range(math.floor((last - first) / step + 1e-9) + 1)]


# ── plots ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def lines(x: Axis, y: Axis, series: Sequence[Series], *, label: str, filled: bool = False, steps: bool = False) -> str:
    """Lines in a frame, the first on top. `steps` is for shares of a whole, which rise at their points."""
    drawn = [_line(x, y, one, filled=filled, steps=steps) for one in reversed(series) if one.points]
    return _frame(x, y, "".join(drawn), label=label)


def bars(x: Axis, y: Axis, series: Sequence[Series], *, label: str) -> str:
    """Bars, one on the other; the points of all series are at the same places."""
    drawn: list[str] = []
    base: dict[float, float] = {}
    places = [x.place(at) for at, _ in series[0].points] if series else []
    width = max((places[1] - places[0] if len(places) > 1 else 0.05) * _wide() * 0.8, 1.0)
    for one in series:
        for at, value in one.points:
            if value > 0:
                low = base.get(at, 0.0)
                top, bottom = _down(y.place(low + value)), _down(y.place(low))
                left = _right(x.place(at)) - width
                drawn.append(
                    f'<rect class="b c{one.colour}" x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" '
                    f'height="{max(bottom - top, 0.5):.1f}"/>'
                )
                base[at] = low + value
    return _frame(x, y, "".join(drawn), label=label)


def over(x: Axis, from_: float, to: float, said: str) -> str:
    """A shaded part of a plot, with words in it; to be put into one with `within`."""
    left, right = _right(min(x.place(from_), 1.0)), _right(min(x.place(to), 1.0))
    return (
        f'<rect class="shade" x="{left:.1f}" y="{TOP}" width="{right - left:.1f}" height="{_high()}"/>'
        f'<text class="note" x="{left + 6:.1f}" y="{TOP + 14}">{escape(said)}</text>'
    )


def tips(x: Axis, said: Sequence[tuple[float, str]]) -> str:
    """What a pointer is told over each stretch that ends at a place."""
    drawn: list[str] = []
    before = 0.0
    for at, text in said:
        left, right = _right(x.place(before)), _right(x.place(at))
        drawn.append(
            f'<rect class="tip" x="{left:.1f}" y="{TOP}" width="{max(right - left, 0.1):.1f}" height="{_high()}">'
            f"<title>{escape(text)}</title></rect>"
        )
        before = at
    return "".join(drawn)


def within(plot: str, *more: str) -> str:
    """A plot with more drawn into it."""
    return plot.removesuffix("</svg>") + "".join(more) + "</svg>"


def legend(series: Sequence[Series]) -> str:
    """Which colour is what."""
    items = [f'<li><i class="c{one.colour}"></i>{escape(one.name)}</li>' for one in series if one.points]
    return f'<ul class="legend">{"".join(items)}</ul>'


def _line(x: Axis, y: Axis, one: Series, *, filled: bool, steps: bool) -> str:
    points = [(_right(min(x.place(at), 1.0)), _down(y.place(value))) for at, value in one.points]
    path: list[str] = []
    for number, (right, down) in enumerate(points):
        if number and steps:
            path.append(f"H{right:.1f}V{down:.1f}")
        else:
            path.append(f"{'L' if number else 'M'}{right:.1f} {down:.1f}")
    drawn = "".join(path)
    area = ""
    if filled:
        area = f'<path class="a c{one.colour}" d="{drawn}V{_down(0.0):.1f}H{points[0][0]:.1f}Z"/>'
    return f'{area}<path class="l c{one.colour}" d="{drawn}"><title>{escape(one.name)}</title></path>'


def _frame(x: Axis, y: Axis, inside: str, *, label: str) -> str:
    drawn: list[str] = []
    for at, text in y.marks:
        height = _down(y.place(at))
        drawn.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{height:.1f}" y2="{height:.1f}"/>'
            f'<text class="axis" x="{LEFT - 8}" y="{height + 4:.1f}" text-anchor="end">{escape(text)}</text>'
        )
    for at, text in x.marks:
        right = _right(x.place(at))
        drawn.append(
            f'<line class="tick" x1="{right:.1f}" x2="{right:.1f}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM + 5}"/>'
            f'<text class="axis" x="{right:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{escape(text)}</text>'
        )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">{"".join(drawn)}{inside}'
        f'<line class="base" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}"/></svg>'
    )


def _wide() -> int:
    return WIDTH - LEFT - RIGHT


def _high() -> int:
    return HEIGHT - TOP - BOTTOM


def _right(part: float) -> float:
    return LEFT + part * _wide()


def _down(part: float) -> float:
    return TOP + (1.0 - min(max(part, 0.0), 1.0)) * _high()
