"""Sandboxed programs one at a time on a node without a leader: from when the node has each until it knows its end.

The node is the ground on which attacks are tried (`headway doctor --sandbox`): the agent's own executor, control groups
and sandbox, in this process. So neither HTTP nor PostgreSQL is in the figure.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time

from headway.agent.sandbox.escapes.ground import a_ground

WARM_UP = 20
"""By then there is a warm slot, and a group that was used before."""


def main() -> None:
    """Prints how long each took, in milliseconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--fresh", action="store_true", help="a new sandbox each, no warm slot")
    said = parser.parse_args()
    print(json.dumps(asyncio.run(_taken(said.count, is_fresh=said.fresh))))


async def _taken(count: int, *, is_fresh: bool) -> list[float]:
    async with a_ground() as ground:
        ground.is_fresh = is_fresh
        took: list[float] = []
        for _ in range(count + WARM_UP):
            began = time.perf_counter()
            ending = await ground.run(["/bin/true"], cpu=1000)
            took.append((time.perf_counter() - began) * 1000)
            if ending.exit_code != 0:
                raise SystemExit(f"a /bin/true ended with {ending.code}: {ending.message}")
        return took[WARM_UP:]


if __name__ == "__main__":
    main()
