"""Plans a number of pools by chance that a seed decides, and prints every plan: for interpreters to be compared."""

from __future__ import annotations

import random
import sys

from headway.core.lifecycle import Lane
from tests.core.facts import MACHINES, SHAPES
from tests.core.happenings import Cancel, Finish, Happening, Join, Leave, Pool, Round, Submit, Tidy, Wait


def main(count: int) -> None:
    """Pools one after the other."""
    for seed in range(count):
        chance = random.Random(seed)
        pool = Pool()
        for one in [Join(n, chance.randrange(len(MACHINES))) for n in range(1, 4)]:
            pool.happen(one)
        for _ in range(30):
            pool.happen(_anything(chance))
            pool.happen(Round())
        sys.stdout.write(f"{seed} {pool.plans}\n")


def _anything(chance: random.Random) -> Happening:
    shape, tenant, lane = chance.randrange(len(SHAPES)), chance.randint(1, 3), chance.choice(list(Lane))
    slack, cap = chance.choice([1.0, 60.0, 900.0]), chance.choice([1.0, 60.0])
    return chance.choice([
        Submit(shape, tenant, lane, slack, cap, many=chance.randint(1, 9)),
        Submit(shape, tenant, lane, slack, cap, many=chance.randint(1, 9)),
        Finish(chance.randrange(50), chance.randint(1, 9)),
        Finish(chance.randrange(50), again=True),
        Cancel(chance.randrange(50)),
        Wait(chance.choice([0.5, 5.0, 60.0])),
        Join(chance.randint(1, 4), chance.randrange(len(MACHINES))),
        Leave(chance.randint(1, 4)),
        Tidy(),
    ])  # fmt: skip


if __name__ == "__main__":
    main(int(sys.argv[1]))
