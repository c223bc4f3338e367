"""What a server tells Prometheus about itself and, while it leads, about its pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headway.core.outlook import Outlook
from headway.monitor.metrics import Labelled, Reading
from headway.scheduler.leader import Leader


def readings(leader: Leader, accepted: Callable[[], int], pool: str) -> list[Reading]:
    """All there is to tell."""
    return [
        Reading("counter", "headway_tasks_accepted", "Tasks stored by this gateway.", accepted),
        Reading(
            "counter", "headway_tasks_dispatched", "Attempts sent to nodes.", lambda: leader.dispatching.dispatched
        ),
        Reading("counter", "headway_tasks_ended", "Tasks that ended, well or not.", lambda: leader.endings.recorded),
        Reading("gauge", "headway_leader_epoch", "The epoch led here; 0 while standing by.", lambda: leader.epoch),
        Reading("gauge", "headway_queue_held", "Ready tasks held in memory.", lambda: len(leader.planner)),
        Reading("gauge", "headway_attempts_owned", "Attempts that nodes own now.", lambda: len(leader.books)),
        Reading("gauge", "headway_nodes_connected", "Nodes in session.", lambda: len(list(leader.planner.nodes.all()))),
        *_of_the_pool(leader, pool),
    ]


def _of_the_pool(leader: Leader, pool: str) -> list[Reading]:
    """Told by the server that leads it, and by no other."""

    def seen(read: Callable[[Outlook], float]) -> Callable[[], Sequence[Labelled]]:
        def labelled() -> Sequence[Labelled]:
            published = leader.insight.published
            return [] if published is None else [((pool,), read(published.outlook))]

        return labelled

    def ratios() -> Sequence[Labelled]:
        published = leader.insight.published
        found = [] if published is None else published.outlook.ratios
        return [((pool, one.tier or "", one.window), one.ratio) for one in found]

    gauges: list[tuple[str, str, Callable[[Outlook], float]]] = [
        ("headway_pool_utilization", "The part in use of the resource used most.", lambda o: o.utilization),
        ("headway_pool_is_peak", "1 while off-peak work waits.", lambda o: o.is_peak),
        ("headway_off_peak_deferred", "Off-peak tasks that wait for the peak to end.", lambda o: o.deferred),
        ("headway_nodes_wanted", "Nodes that would bring the demand ratio to its target.", lambda o: o.nodes_wanted),
    ]

    def preemptions() -> Sequence[Labelled]:
        return [((pool, *what), count) for what, count in sorted(leader.preempting.decided.items())]

    return [
        *(Reading("gauge", name, text, seen(read), ("pool",)) for name, text, read in gauges),
        Reading(
            "counter", "headway_preemptions", "Attempts it was decided to pause, for what and how.",
            preemptions, ("pool", "code", "how"),
        ),
        Reading(
            "gauge", "headway_nodes_closed", "Nodes that take no more tasks.",
            seen(lambda _: len(leader.upkeep.closed)), ("pool",),
        ),
        Reading(
            "gauge", "headway_nodes_quarantined", "Of these, those that failed what ends well elsewhere.",
            seen(lambda _: leader.upkeep.quarantined), ("pool",),
        ),
        Reading(
            "counter", "headway_attempts_stood", "Attempts that stood still for others.",
            seen(lambda _: leader.steering.frozen), ("pool",),
        ),
        Reading(
            "gauge", "headway_attempts_standing", "Attempts that stand still until there is room again.",
            seen(lambda _: leader.steering.standing), ("pool",),
        ),
        Reading(
            "counter", "headway_off_peak_released", "Off-peak tasks that started after they had been deferred.",
            seen(lambda _: leader.dispatching.released), ("pool",),
        ),
        Reading(
            "gauge", "headway_demand_ratio", "Resources against demand; a tier's against what others leave it.",
            ratios, ("pool", "tier", "window"),
        ),
    ]  # fmt: skip
