"""A task in a simulation, and one stretch of it running. There may be a million at once, so they are small."""

from __future__ import annotations

from headway.sim.measures import Account


class Task:
    """A task that waits or runs; when it ended, nothing of it is left."""

    __slots__ = (
        "account", "arrived", "cap_left", "cap_ms", "has_started", "id", "left", "losses", "paused", "ran", "start_by",
    )  # fmt: skip

    def __init__(self, number: int, account: Account, arrived: float, cap_ms: int, left: float) -> None:
        self.id = number
        self.account = account
        self.arrived = arrived
        self.start_by = 0.0
        self.cap_ms = cap_ms
        self.cap_left = cap_ms / 1000
        """Of the attempt under way; time in which it is frozen does not count."""
        self.left = left
        """How long it would run to its end."""
        self.ran = 0.0
        self.paused = 0
        self.losses = 0
        self.has_started = False


class Run:
    """A task on a node, from its start (or thaw) to its end (or pause)."""

    __slots__ = ("began", "express", "is_over", "node", "task")

    def __init__(self, task: Task, node: int, began: float, express: bool) -> None:
        self.task = task
        self.node = node
        self.began = began
        self.express = express
        self.is_over = False
