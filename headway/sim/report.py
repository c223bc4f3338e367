"""The report: one HTML file that stands for itself. No scripts, nothing from elsewhere; the same outcome, same bytes.

With one policy it shows what happened to whom and when; with several, first how they compare, then each line of a plot
is one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from headway.sim import plots
from headway.sim.outcome import Moment, Outcome, Row
from headway.sim.plots import COLOURS, Axis, Series
from headway.sim.said import Table, amount, by_tenant, comparison, counted, lasting, part
from headway.sim.style import STYLE

CURVES_MAX = COLOURS
ROWS_MAX = 200
LANES = {"urgent": 3, "periodic": 2, "normal": 0, "offpeak": 4}
"""The colour of each lane."""


def report(found: Sequence[Outcome]) -> str:
    """A page about one simulation, or several of the same scenario that differ in what decided."""
    first = found[0]
    parts = [_head(found), _cards(first) if len(found) == 1 else _compared(found)]
    parts += [f'<section class="plots">{"".join(_of_one(first) if len(found) == 1 else _of_all(found))}</section>']
    for one in found:
        parts.append(_tenants(one, named=len(found) > 1))
    parts.append(_foot(first))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(first.scenario)} · Headway simulation</title><style>{STYLE}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


# ── words and tables ──────────────────────────────────────────────────────────────────────────────────────────────────


def _head(found: Sequence[Outcome]) -> str:
    one = found[0]
    chips = [
        ("policy", " · ".join(each.policy for each in found)),
        ("nodes", counted(one.nodes)),
        ("tasks", counted(one.arrived)),
        ("arrivals for", lasting(one.horizon)),
        ("seed", str(one.seed)),
    ]
    said = "".join(f"<li><b>{escape(name)}</b> {escape(value)}</li>" for name, value in chips)
    partly = "" if all(each.is_whole for each in found) else '<p class="warning">Interrupted: this is a part of it.</p>'
    return (
        f"<header><p class='kind'>Headway simulation</p><h1>{escape(one.scenario)}</h1>"
        f"<p class='about'>{escape(one.about)}</p><ul class='chips'>{said}</ul>{partly}</header>"
    )


def _cards(one: Outcome) -> str:
    missed = one.missed / one.arrived if one.arrived else 0.0
    urgent = next((lane for lane in one.lanes if lane.lane == "urgent"), None)
    cards = [
        ("Deadline misses", part(missed), f"{counted(one.missed)} of {counted(one.arrived)} started late", missed > 0),
        (
            "Urgent wait, p99",
            lasting(urgent.p99) if urgent else "–",
            f"of {counted(urgent.started)} urgent tasks" if urgent else "nothing was urgent",
            False,
        ),
        (
            "Utilization",
            part(round(one.utilization.get(one.bottleneck, 0.0), 3)),
            f"of {one.bottleneck}, the busiest resource" if one.bottleneck else "nothing ran",
            False,
        ),
        (
            "Fairness",
            f"{one.fairness:.3f}" if one.contended else "–",
            f"Jain's index; least {one.fairness_least:.3f}" if one.contended else "nobody had to wait for room",
            False,
        ),
        (
            "Pauses",
            counted(one.freezes + one.checkpoints),
            f"{counted(one.freezes)} frozen, {counted(one.checkpoints)} moved",
            False,
        ),
    ]
    drawn = [
        f'<div class="card{" bad" if is_bad else ""}"><h2>{escape(name)}</h2><p class="big">{escape(value)}</p>'
        f"<p>{escape(note)}</p></div>"
        for name, value, note, is_bad in cards
    ]
    return f'<section class="cards">{"".join(drawn)}</section>'


def _compared(found: Sequence[Outcome]) -> str:
    return f"<section class='panel wide'><h2>Side by side</h2>{_table(comparison(found))}</section>"


def _tenants(one: Outcome, *, named: bool) -> str:
    headings, rows = by_tenant(one)
    more = f"<p>and {counted(len(rows) - ROWS_MAX)} more</p>" if len(rows) > ROWS_MAX else ""
    title = f"Tenants and lanes with {one.policy}" if named else "Tenants and lanes"
    return f"<section class='panel wide'><h2>{escape(title)}</h2>{_table((headings, rows[:ROWS_MAX]))}{more}</section>"


def _table(table: Table) -> str:
    headings, rows = table
    head = "".join(f"<th>{escape(name.capitalize())}</th>" for name in headings)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _foot(one: Outcome) -> str:
    has = ", ".join(amount(name, value) for name, value in one.capacity.items())
    return (
        f"<footer>Ended at {escape(lasting(one.reached))} of simulated time after {counted(one.rounds)} rounds of "
        f"decisions. Capacity: {escape(has)}. Tasks that started later than they tolerate are misses; fairness is "
        "Jain's index of what each tenant got over its max-min fair share, while somebody had to wait.</footer>"
    )


# ── plots of one ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _of_one(one: Outcome) -> list[str]:
    if not one.series:
        return []
    x = plots.time_axis(one.series[-1].until)
    found = [_utilization(one, x), _queue(one, x), _waits(one), _lateness(one), _lanes(one, x)]
    if one.contended:
        found.append(_fairness([one], x))
    if one.freezes + one.checkpoints:
        found.append(_pauses(one, x))
    if any(moment.missed for moment in one.series):
        found.append(_misses(one, x))
    if len({moment.nodes for moment in one.series}) > 1:
        found.append(_nodes(one, x))
    return found


def _utilization(one: Outcome, x: Axis) -> str:
    names = [name for name, value in one.utilization.items() if value > 0][:CURVES_MAX]
    series = [
        Series(name, [(moment.until, moment.used.get(name, 0.0)) for moment in one.series], number)
        for number, name in enumerate(names)
    ]
    y = plots.linear_axis(0.0, 1.0, lambda value: f"{value:.0%}")
    said = [
        (moment.until, _at(moment) + "".join(f"\n{name} {moment.used.get(name, 0.0):.1%}" for name in names))
        for moment in one.series
    ]
    plot = plots.lines(x, y, series, label="Utilization over time", filled=True)
    return _panel("Utilization", "part of what was there, by resource", plots.within(plot, plots.tips(x, said)), series)


def _queue(one: Outcome, x: Axis) -> str:
    series = [
        Series("running", [(moment.until, moment.running) for moment in one.series], 0),
        Series("waiting", [(moment.until, moment.waiting) for moment in one.series], 3),
    ]
    said = [(m.until, f"{_at(m)}\nrunning {m.running:,.0f}\nwaiting {m.waiting:,.0f}") for m in one.series]
    plot = plots.lines(x, _counts(series), series, label="Tasks running and waiting over time", filled=True)
    return _panel("Tasks", "running and waiting, mean of each window", plots.within(plot, plots.tips(x, said)), series)


def _waits(one: Outcome) -> str:
    rows = _largest(one.rows)
    series = [Series(f"{row.tenant} · {row.lane}", row.wait_curve, number) for number, row in enumerate(rows)]
    x = plots.waiting_axis(max((row.wait.most for row in rows), default=1.0))
    plot = plots.lines(x, _percents(), series, label="Waiting time by tenant and lane", steps=True)
    return _panel("Waiting time", "part of the tasks that waited no longer, by tenant and lane", plot, series)


def _lateness(one: Outcome) -> str:
    rows, most = _largest(one.rows), 2.0
    series = [
        Series(f"{row.tenant} · {row.lane}", [(min(at, most), value) for at, value in row.slack_curve], number)
        for number, row in enumerate(rows)
    ]
    x = plots.linear_axis(0.0, most, lambda value: f"{value:.0%}", marks=8)
    plot = plots.lines(x, _percents(), series, label="Waiting against tolerance", steps=True)
    plot = plots.within(plot, plots.over(x, 1.0, most, "late"))
    return _panel("Lateness", "waiting as a part of the delay that was tolerated; beyond 100% is late", plot, series)


def _lanes(one: Outcome, x: Axis) -> str:
    series = [
        Series(lane, [(moment.until, moment.p99[lane]) for moment in one.series if lane in moment.p99], colour)
        for lane, colour in LANES.items()
    ]
    most = max((value for each in series for _, value in each.points), default=1.0)
    plot = plots.lines(x, plots.waiting_axis(most), series, label="99th percentile of waiting by lane")
    said = [
        (moment.until, _at(moment) + "".join(f"\n{lane} {lasting(wait)}" for lane, wait in moment.p99.items()))
        for moment in one.series
    ]
    note = "99th percentile of those that started in a window, by lane"
    return _panel("Waiting over time", note, plots.within(plot, plots.tips(x, said)), series)


def _pauses(one: Outcome, x: Axis) -> str:
    series = [
        Series("frozen", [(moment.until, float(moment.freezes)) for moment in one.series], 0),
        Series("moved by checkpoint", [(moment.until, float(moment.checkpoints)) for moment in one.series], 2),
    ]
    y = _counts([Series("", [(m.until, float(m.freezes + m.checkpoints)) for m in one.series], 0)])
    said = [(m.until, f"{_at(m)}\nfrozen {m.freezes}\nmoved {m.checkpoints}") for m in one.series]
    plot = plots.within(plots.bars(x, y, series, label="Preemptions"), plots.tips(x, said))
    return _panel("Preemptions", "tasks paused for what was pressing, in each window", plot, series)


def _misses(one: Outcome, x: Axis) -> str:
    series = [Series("started late", [(moment.until, float(moment.missed)) for moment in one.series], 3)]
    said = [(m.until, f"{_at(m)}\n{m.missed:,} of {m.started:,} late") for m in one.series]
    plot = plots.within(plots.bars(x, _counts(series), series, label="Deadline misses"), plots.tips(x, said))
    return _panel("Deadline misses", "tasks that started late, in each window", plot, series)


def _nodes(one: Outcome, x: Axis) -> str:
    series = [Series("nodes", [(moment.until, moment.nodes) for moment in one.series], 5)]
    values = [moment.nodes for moment in one.series]
    low = min(values) - (max(values) - min(values)) * 0.2
    y = plots.linear_axis(max(low, 0.0), max(values), lambda value: f"{value:,.6g}")
    said = [(moment.until, f"{_at(moment)}\n{moment.nodes:,.1f} nodes") for moment in one.series]
    plot = plots.within(plots.lines(x, y, series, label="Nodes over time"), plots.tips(x, said))
    return _panel("Nodes", "that were there, mean of each window", plot, series)


# ── plots of several ──────────────────────────────────────────────────────────────────────────────────────────────────


def _of_all(found: Sequence[Outcome]) -> list[str]:
    longest = max(found, key=lambda one: one.series[-1].until if one.series else 0.0)
    if not longest.series:
        return []
    x = plots.time_axis(longest.series[-1].until)
    drawn = [
        _each(found, x, "Tasks that wait", "mean of each window", lambda moment: moment.waiting),
        _each(found, x, "Deadline misses", "in each window", lambda moment: float(moment.missed)),
        _bottleneck(found, x),
    ]
    if any(one.contended for one in found):
        drawn.append(_fairness(found, x))
    return [*drawn, *(_lane_curves(found, lane) for lane in LANES)]


def _each(found: Sequence[Outcome], x: Axis, title: str, note: str, value: Callable[[Moment], float]) -> str:
    series = [
        Series(one.policy, [(moment.until, value(moment)) for moment in one.series], number)
        for number, one in enumerate(found)
    ]
    return _panel(title, note, plots.lines(x, _counts(series), series, label=title), series)


def _bottleneck(found: Sequence[Outcome], x: Axis) -> str:
    name = found[0].bottleneck
    series = [
        Series(one.policy, [(moment.until, moment.used.get(name, 0.0)) for moment in one.series], number)
        for number, one in enumerate(found)
    ]
    y = plots.linear_axis(0.0, 1.0, lambda value: f"{value:.0%}")
    return _panel("Utilization", f"of {name}", plots.lines(x, y, series, label="Utilization"), series)


def _lane_curves(found: Sequence[Outcome], lane: str) -> str:
    """How long the tasks of a lane waited, by policy."""
    series = [
        Series(one.policy, curve.wait_curve, number)
        for number, one in enumerate(found)
        for curve in one.lanes
        if curve.lane == lane
    ]
    if not series:
        return ""
    x = plots.waiting_axis(max((each.points[-1][0] for each in series if each.points), default=1.0))
    plot = plots.lines(x, _percents(), series, label=f"Waiting time, {lane}", steps=True)
    return _panel(f"Waiting time, {lane}", "part of the tasks that waited no longer", plot, series)


# ── pieces ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _fairness(found: Sequence[Outcome], x: Axis) -> str:
    series = [
        Series(
            one.policy,
            [(moment.until, moment.fairness) for moment in one.series if moment.fairness is not None],
            number,
        )
        for number, one in enumerate(found)
    ]
    least = min((value for each in series for _, value in each.points), default=0.0)
    y = plots.linear_axis(0.0 if least < 0.5 else 0.5, 1.0, lambda value: f"{value:.2g}")
    plot = plots.lines(x, y, series, label="Fairness over time")
    return _panel("Fairness", "Jain's index over max-min fair shares, while somebody had to wait", plot, series)


def _panel(title: str, note: str, plot: str, series: Sequence[Series]) -> str:
    key = plots.legend(series) if len(series) > 1 else ""
    return f"<figure class='panel'><h2>{escape(title)}</h2><p>{escape(note)}</p>{plot}{key}</figure>"


def _largest(rows: Sequence[Row]) -> list[Row]:
    """Those that have a colour: the ones with the most tasks, in their own order."""
    chosen = sorted(rows, key=lambda row: -row.arrived)[:CURVES_MAX]
    return [row for row in rows if row in chosen]


def _percents() -> Axis:
    return plots.linear_axis(0.0, 1.0, lambda value: f"{value:.0%}")


def _counts(series: Sequence[Series]) -> Axis:
    most = max((value for one in series for _, value in one.points), default=1.0)
    return plots.linear_axis(0.0, max(most, 1.0) * 1.05, _short)


def _short(number: float) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"


def _at(moment: Moment) -> str:
    days, rest = divmod(moment.until, plots.DAY)
    clock = f"{int(rest // 3600):02}:{int(rest % 3600 // 60):02}"
    return f"day {int(days) + 1}, {clock}" if days else clock
