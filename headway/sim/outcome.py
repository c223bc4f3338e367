"""What came of a simulation, as data: what the table prints, `-o json` writes and the report draws."""

from __future__ import annotations

import msgspec

from headway.core.lifecycle import Lane
from headway.sim.histogram import Histogram
from headway.sim.measures import Measures, Tally, Window
from headway.sim.simulation import Simulation


class Waits(msgspec.Struct, frozen=True):
    """Seconds that tasks waited for their first start."""

    mean: float
    p50: float
    p90: float
    p99: float
    most: float


class Row(msgspec.Struct, frozen=True):
    """The tasks of one tenant (or of those alike) in one lane."""

    tenant: str
    lane: str
    arrived: int
    started: int
    done: int
    capped: int
    """Ended by their execution cap."""
    lost: int
    """Attempts that went down with a node."""
    missed: int
    """Started later than `start_by`, or not at all although it is past."""
    wait: Waits
    late_mean: float
    """Of those that started late: by how many seconds."""
    late_p99: float
    wait_curve: list[tuple[float, float]]
    """Seconds, and the part that waited no longer."""
    slack_curve: list[tuple[float, float]]
    """Waiting as a part of what was tolerated, and the part of tasks that waited no more than that."""


class LaneWait(msgspec.Struct, frozen=True):
    """How long the tasks of a lane waited."""

    lane: str
    started: int
    missed: int
    p50: float
    p99: float
    wait_curve: list[tuple[float, float]]
    """Seconds, and the part that waited no longer."""


class Moment(msgspec.Struct, frozen=True):
    """A window of the series."""

    until: float
    used: dict[str, float]
    fairness: float | None
    """None while nobody had to wait."""
    running: float
    waiting: float
    nodes: float
    started: int
    missed: int
    freezes: int
    checkpoints: int
    p99: dict[str, float]


class Outcome(msgspec.Struct, frozen=True):
    """All of it."""

    scenario: str
    about: str
    policy: str
    seed: int
    nodes: int
    horizon: float
    reached: float
    """The simulated second at which it ended, or was interrupted."""
    is_whole: bool
    arrived: int
    started: int
    done: int
    missed: int
    late_mean: float
    """Of those that started late."""
    late_p99: float
    utilization: dict[str, float]
    bottleneck: str
    fairness: float
    """Jain's index, mean of the windows in which somebody had to wait."""
    fairness_least: float
    contended: int
    """How many windows that were."""
    freezes: int
    checkpoints: int
    resumes: int
    lost_seconds: float
    capacity: dict[str, int]
    rounds: int
    lanes: list[LaneWait]
    rows: list[Row]
    series: list[Moment]


def outcome(simulation: Simulation, policy: str, *, is_whole: bool = True) -> Outcome:
    """What came of a simulation so far."""
    world, measures = simulation.world, simulation.measures
    waiting = _waiting_late(simulation)
    rows = [_row(group, lane, tally, waiting.get((group, lane), 0)) for (group, lane), tally in _in_order(measures)]
    utilization = {name: round(part, 6) for name, part in sorted(measures.utilization().items())}
    late = _merged([tally.late for tally in measures.tallies.values()])
    mean, least, contended = measures.fairness()
    return Outcome(
        scenario=world.scenario.name,
        about=world.scenario.about.strip(),
        policy=policy,
        seed=world.seed,
        nodes=len(world.sites),
        horizon=world.horizon,
        reached=round(simulation.now, 3),
        is_whole=is_whole,
        arrived=sum(row.arrived for row in rows),
        started=sum(row.started for row in rows),
        done=sum(row.done for row in rows),
        missed=sum(row.missed for row in rows),
        late_mean=round(late.mean, 3),
        late_p99=round(late.quantile(0.99), 3),
        utilization=utilization,
        bottleneck=max(utilization, key=lambda name: utilization[name], default=""),
        fairness=round(mean, 6),
        fairness_least=round(least, 6),
        contended=contended,
        freezes=measures.freezes,
        checkpoints=measures.checkpoints,
        resumes=measures.resumes,
        lost_seconds=round(measures.lost_seconds, 3),
        capacity=dict(measures.capacity),
        rounds=simulation.rounds,
        lanes=_lanes(measures, rows),
        rows=rows,
        series=[_moment(window) for window in measures.windows],
    )


def _in_order(measures: Measures) -> list[tuple[tuple[str, Lane], Tally]]:
    return sorted(((key, tally) for key, tally in measures.tallies.items() if tally.arrived), key=lambda one: one[0])


def _waiting_late(simulation: Simulation) -> dict[tuple[str, Lane], int]:
    """What should have started by now and has not."""
    found: dict[tuple[str, Lane], int] = {}
    for task in simulation.tasks.values():
        if not task.has_started and task.start_by < simulation.now:
            key = (task.account.stream.group, task.account.stream.lane)
            found[key] = found.get(key, 0) + 1
    return found


def _row(group: str, lane: Lane, tally: Tally, waiting_late: int) -> Row:
    return Row(
        tenant=group,
        lane=lane.name.lower(),
        arrived=tally.arrived,
        started=tally.started,
        done=tally.done,
        capped=tally.capped,
        lost=tally.lost,
        missed=tally.missed + waiting_late,
        wait=_waits(tally.waits),
        late_mean=round(tally.late.mean, 3),
        late_p99=round(tally.late.quantile(0.99), 3),
        wait_curve=_curve(tally.waits),
        slack_curve=_curve(tally.slack),
    )


def _curve(found: Histogram) -> list[tuple[float, float]]:
    return [(round(value, 4), round(part, 5)) for value, part in found.steps()]


def _waits(waits: Histogram) -> Waits:
    p50, p90, p99 = (round(waits.quantile(part), 3) for part in (0.5, 0.9, 0.99))
    return Waits(round(waits.mean, 3), p50, p90, p99, round(waits.most, 3))


def _lanes(measures: Measures, rows: list[Row]) -> list[LaneWait]:
    found: list[LaneWait] = []
    for lane in Lane:
        waits = _merged([tally.waits for (_, one), tally in measures.tallies.items() if one == lane])
        missed = sum(row.missed for row in rows if row.lane == lane.name.lower())
        if any(row.lane == lane.name.lower() for row in rows):
            p50, p99 = round(waits.quantile(0.5), 3), round(waits.quantile(0.99), 3)
            found.append(LaneWait(lane.name.lower(), waits.count, missed, p50, p99, _curve(waits)))
    return found


def _merged(histograms: list[Histogram]) -> Histogram:
    whole = Histogram()
    for one in histograms:
        whole.merge(one)
    return whole


def _moment(window: Window) -> Moment:
    return Moment(
        until=round(window.ends_at, 3),
        used={name: round(part, 4) for name, part in sorted(window.used.items())},
        fairness=round(window.fairness, 4) if window.is_contended else None,
        running=round(window.running, 2),
        waiting=round(window.waiting, 2),
        nodes=round(window.nodes, 2),
        started=window.started,
        missed=window.missed,
        freezes=window.freezes,
        checkpoints=window.checkpoints,
        p99={lane.name.lower(): round(wait, 3) for lane, wait in window.waits.items()},
    )
