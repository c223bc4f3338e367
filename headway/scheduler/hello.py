"""What an agent that says hello is refused for, and what it is told of that which it brings along."""

from __future__ import annotations

import json

from headway.scheduler.leases import NODE_LEASE_SECONDS
from headway.store.cluster import ClusterStore
from headway.store.database import Row
from headway.wire import Bounds, Hello, Key

CAPACITY_MAX = 2**60


def wrong_hello(hello: Hello) -> str | None:
    """What cannot be in a hello, however it was meant."""
    if not 0 < len(hello.node) <= 200 or "\0" in hello.node + hello.incarnation + hello.home:
        return "a node's name has 1 to 200 characters and no NUL"
    if not all(0 <= amount <= CAPACITY_MAX for amount in hello.capacity.values()):
        return "a node's capacity is made of whole numbers from 0 on"
    return None


def name_taken(name: str, seconds: float) -> str:
    """What an agent is told whose name another one may still be running tasks under."""
    return (
        f"another agent named {name!r} was here and may still run its tasks for {seconds:.0f} s; "
        "give this one another --node name, or wait until it may not"
    )


def bounds_of(key: Key, row: Row) -> Bounds:
    """How long an attempt may run in all, as the database has it."""
    return Bounds(*key, max(row["execution_cap_ms"] - row["used_ms"], 1), row["cap_grace_ms"])


async def join(cluster: ClusterStore, hello: Hello) -> int:
    """Begins a node's session in the database; answers its number."""
    return await cluster.join_node(
        hello.node,
        hello.incarnation,
        json.dumps(hello.capacity),
        json.dumps(hello.labels),
        json.dumps(hello.functions),
        NODE_LEASE_SECONDS,
        hello.home,
        json.dumps(hello.profiles),
        json.dumps(hello.degraded),
    )
