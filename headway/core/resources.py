"""Resource vectors: integers by name, and the one question asked of them.

The planner and the agent's own accounting both ask `fits`; there is no second opinion.
"""

from __future__ import annotations

from collections.abc import Mapping

Vector = Mapping[str, int]


def fits(needs: Vector, free: Vector) -> bool:
    """Whether everything in `needs` is there."""
    for name, amount in needs.items():  # noqa: SIM110  twice as fast as all() over a generator, and asked of every node
        if free.get(name, 0) < amount:
            return False
    return True


def how_many_fit(needs: Vector, free: Vector, *, most: int) -> int:
    """How many times `needs` goes into `free`, up to `most`."""
    for name, amount in needs.items():
        if amount > 0:
            most = min(most, free.get(name, 0) // amount)
    return max(most, 0)


def take(free: dict[str, int], needs: Vector, count: int = 1) -> None:
    """Removes `needs`, `count` times; what is not there goes below zero and has to come back first."""
    for name, amount in needs.items():
        free[name] = free.get(name, 0) - amount * count


def give(free: dict[str, int], needs: Vector, count: int = 1) -> None:
    """Gives `needs` back, `count` times."""
    for name, amount in needs.items():
        free[name] = free.get(name, 0) + amount * count


def nearest(needs: Vector, nodes: Mapping[str, Vector]) -> tuple[str, list[str]]:
    """The node that lacks the least of `needs` by its capacity, and what it lacks."""

    def lacking(node: str) -> dict[str, float]:
        has = nodes[node]
        return {name: 1 - has.get(name, 0) / amount for name, amount in needs.items() if has.get(name, 0) < amount}

    node = min(nodes, key=lambda name: sum(lacking(name).values()))
    return node, list(lacking(node))
