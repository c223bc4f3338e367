"""What runs where: the leader's account of every attempt that a node owns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from headway.core.placement import Nodes


class Holding(NamedTuple):
    """An attempt that a node owns."""

    attempt: int
    node: int
    shape: int


class Books:
    """Attempts by (tenant, task), and the room they occupy."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._holdings: dict[tuple[int, int], Holding] = {}

    def __len__(self) -> int:
        return len(self._holdings)

    def clear(self) -> None:
        """Forgets all: the leadership begins anew."""
        self._holdings.clear()

    def enter(self, task: tuple[int, int], holding: Holding) -> None:
        """Notes an attempt whose room is booked already."""
        self._holdings[task] = holding

    def adopt(self, task: tuple[int, int], holding: Holding) -> None:
        """Notes an attempt that a node brought along, and books its room."""
        self._holdings[task] = holding
        self._nodes.occupy(holding.node, holding.shape, 1)

    def holding(self, task: tuple[int, int]) -> Holding | None:
        """Who owns the running attempt of a task."""
        return self._holdings.get(task)

    def strike(self, tasks: Iterable[tuple[int, int, int]], node: int) -> list[bool]:
        """Removes (tenant, task, attempt) that the node owns and gives their room back; tells which were there."""
        found: list[bool] = []
        vacated: Counter[int] = Counter()
        for tenant, task, attempt in tasks:
            holding = self._holdings.get((tenant, task))
            mine = holding is not None and holding.attempt == attempt and holding.node == node
            if mine and holding is not None:
                del self._holdings[tenant, task]
                vacated[holding.shape] += 1
            found.append(mine)
        for shape, count in vacated.items():
            self._nodes.vacate(node, shape, count)
        return found

    def strike_node(self, node: int) -> None:
        """Forgets what a node owned; its room is gone with it."""
        for task in [task for task, holding in self._holdings.items() if holding.node == node]:
            del self._holdings[task]
