"""Numbers as people read them, and the tables of a simulation as text."""

from __future__ import annotations

from collections.abc import Sequence

from headway.sim.outcome import Outcome

Table = tuple[list[str], list[list[str]]]
"""Headings and rows."""


def lasting(seconds: float) -> str:
    """A duration: 0s, 250ms, 3.2s, 10m, 4m10s, 2h05m, 3d04h."""
    if seconds < 0.0005:
        return "0s"
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.3g}s"
    whole = round(seconds)
    if whole < 3600:
        return _two(whole, 60, "m", 1, "s")
    minutes = round(seconds / 60)
    return _two(minutes, 60, "h", 1, "m") if minutes < 48 * 60 else _two(minutes, 1440, "d", 60, "h")


def _two(whole: int, large: int, unit: str, small: int, smaller: str) -> str:
    rest = whole % large // small
    return f"{whole // large}{unit}" + (f"{rest:02}{smaller}" if rest else "")


def amount(name: str, value: int) -> str:
    """So much of a resource, in the unit people count it in."""
    if name == "cpu":
        return f"{value / 1000:,.6g} {name}"
    if name in ("memory", "disk"):
        unit, size = next(((u, s) for u, s in (("TiB", 1 << 40), ("GiB", 1 << 30)) if value >= s), ("MiB", 1 << 20))
        return f"{value / size:,.4g} {unit} of {name}"
    return f"{value:,} {name}"


def part(value: float) -> str:
    """A part of a whole, as percents; what is little is not nothing, and what is nearly all is not all."""
    said = [f"{value:.{digits}%}" for digits in (1, 2, 3)]
    return next((text for text in said if value in (0, 1) or float(text[:-1]) not in (0.0, 100.0)), said[-1])


def counted(number: int) -> str:
    """A count with its thousands apart."""
    return f"{number:,}"


def by_tenant(found: Outcome) -> Table:
    """Waiting and lateness, by tenant and lane."""
    headings = ["TENANT", "LANE", "TASKS", "MISSED", "WAIT P50", "P90", "P99", "MOST", "LATE P99", "CAPPED", "LOST"]
    rows = [
        [
            row.tenant, row.lane, counted(row.arrived), counted(row.missed), lasting(row.wait.p50),
            lasting(row.wait.p90), lasting(row.wait.p99), lasting(row.wait.most),
            lasting(row.late_p99) if row.missed else "-", counted(row.capped), counted(row.lost),
        ]
        for row in found.rows
    ]  # fmt: skip
    return headings, rows


def summary(found: Outcome) -> list[tuple[str, str]]:
    """What is to be said of the whole, in few words."""
    used = ", ".join(f"{name} {part(value)}" for name, value in found.utilization.items() if value > 0)
    if found.contended:
        fairness = (
            f"{found.fairness:.3f} (least {found.fairness_least:.3f}, over {found.contended} windows with waiting)"
        )
    else:
        fairness = "nobody had to wait for room"
    missed = part(found.missed / found.arrived) if found.arrived else "0%"
    return [
        ("tasks", f"{counted(found.arrived)} arrived, {counted(found.started)} started, {counted(found.done)} done"),
        ("deadline misses", f"{counted(found.missed)} ({missed})"),
        ("utilization", used or "none"),
        ("fairness", fairness),
        ("preemptions", f"{found.freezes} frozen, {found.checkpoints} moved by checkpoint"),
    ]


def comparison(found: Sequence[Outcome]) -> Table:
    """Policies side by side, and scenarios one below the other."""
    known = ("urgent", "periodic", "normal", "offpeak")
    lanes = [lane for lane in known if any(each.lane == lane for one in found for each in one.lanes)]
    is_one = len({one.scenario for one in found}) == 1
    headings = [
        *([] if is_one else ["SCENARIO"]), "POLICY", "MISSED", "LATE P99", *[f"P99 {lane.upper()}" for lane in lanes],
        "FAIRNESS", "UTILIZATION", "PREEMPTIONS",
    ]  # fmt: skip
    rows: list[list[str]] = []
    for one in found:
        p99 = {each.lane: lasting(each.p99) for each in one.lanes}
        row = [
            one.policy, f"{counted(one.missed)} ({part(one.missed / max(one.arrived, 1))})", lasting(one.late_p99),
            *[p99.get(lane, "-") for lane in lanes], f"{one.fairness:.3f}",
            part(one.utilization.get(one.bottleneck, 0.0)), counted(one.freezes + one.checkpoints),
        ]  # fmt: skip
        rows.append(row if is_one else [one.scenario, *row])
    return headings, rows
