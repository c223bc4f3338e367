"""Which nodes fail tasks abnormally often: those that fail what ends well elsewhere, or that say themselves that they
could not run it.

What fails everywhere is the tasks' own fault and suspects nobody. Counts fade, so a bad hour is forgiven; and there is
always somebody left to do the work: never more than a third of the nodes are shut out, and never the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

HALF_LIFE_SECONDS = 600.0
ABNORMAL_LEAST = 4.5
"""Fewer abnormal failures are chance: five, a little faded."""
ABNORMAL_SHARE = 0.5
SHAPES_MAX = 10_000
"""Of so many shapes it is remembered where they ended well."""
SECONDS_FIRST = 600.0
SECONDS_MAX = 4 * 3600.0
OWN_FAULTS = frozenset({"spawn_failed", "no_ports", "no_gpu", "agent_fault", "worker_died", "sandbox_failed"})
"""Codes by which a node says of a lost attempt that it was itself to blame."""


class Suspect(NamedTuple):
    """A node that is to take no more, and why."""

    node: int
    why: str


class _Record:
    """What became of attempts on a node, lately."""

    __slots__ = ("abnormal", "at", "well")

    def __init__(self, now: float) -> None:
        self.abnormal = self.well = 0.0
        self.at = now

    def fade(self, now: float) -> None:
        kept = 0.5 ** (max(now - self.at, 0.0) / HALF_LIFE_SECONDS)
        self.abnormal *= kept
        self.well *= kept
        self.at = now


class Quarantine:
    """Counts, and judges."""

    def __init__(self) -> None:
        self._records: dict[int, _Record] = {}
        self._well: dict[int, dict[int, float]] = {}
        """By shape, the nodes on which it ended well lately, and when."""

    def ended_well(self, node: int, shapes: Mapping[int, int], now: float) -> None:
        """Attempts of these shapes, so many of each, ended well on a node."""
        record = self._record(node, now)
        for shape, count in shapes.items():
            record.well += count
            if len(self._well) >= SHAPES_MAX and shape not in self._well:
                self._well.clear()
            nodes = self._well.setdefault(shape, {})
            if node in nodes or len(nodes) < 2:  # two are enough: one of them is another than the suspect
                nodes[node] = now
            elif now - (oldest := min(nodes.items(), key=lambda one: one[1]))[1] > HALF_LIFE_SECONDS:
                del nodes[oldest[0]]
                nodes[node] = now

    def failed(self, node: int, shape: int, now: float, *, own_fault: bool) -> None:
        """An attempt did not end well on a node."""
        elsewhere = self._well.get(shape, {})
        is_abnormal = own_fault or any(
            other != node and now - at <= HALF_LIFE_SECONDS for other, at in elsewhere.items()
        )
        if is_abnormal:
            self._record(node, now).abnormal += 1

    def judge(self, nodes: Iterable[int], now: float, *, closed: int) -> list[Suspect]:
        """Which of the nodes that take tasks are to take no more; `closed` others do not already."""
        there = list(nodes)
        found: list[Suspect] = []
        for node in there:
            record = self._records.get(node)
            if record is None:
                continue
            record.fade(now)
            total = record.abnormal + record.well
            if record.abnormal < ABNORMAL_LEAST or record.abnormal < ABNORMAL_SHARE * total:
                continue
            may_close = max((len(there) + closed) // 3, 1) - closed
            if len(found) < min(may_close, len(there) - 1):
                what = f"{record.abnormal:.0f} of {total:.0f} attempts failed here that end well elsewhere"
                found.append(Suspect(node, f"{what}, or that the node could not run"))
        for suspect in found:
            self.forget(suspect.node)
        return found

    def forget(self, node: int) -> None:
        """What was counted of a node is over: it begins anew."""
        self._records.pop(node, None)

    def _record(self, node: int, now: float) -> _Record:
        record = self._records.setdefault(node, _Record(now))
        record.fade(now)
        return record
