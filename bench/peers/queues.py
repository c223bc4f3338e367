"""Queues of functions beside Headway: which, how they are started, and each measurement once for all of them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench import venvs
from bench.contest import Unmeasurable
from bench.deployment import WORKERS
from bench.figures import Sample, percentile
from bench.peers import brokers
from bench.programs import environment, finished, last_words, running
from bench.stage import SUBMIT_SECONDS, Stage, insist_on_once, watch
from bench.tally import VARIABLE, Tally

BOOT_SECONDS = 2.5
"""Until idle workers have surely subscribed."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A peer: what to install, where it keeps its tasks, how its workers are started."""

    who: str
    module: str
    packages: tuple[str, ...]
    broker: Callable[[Path], AbstractContextManager[str]]
    drained: int
    """How many tasks make a drain of some seconds."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    consumer: tuple[str, ...] | None = None
    """Its own program, when it starts its worker processes itself."""

    @property
    def python(self) -> str:
        """The interpreter that has it."""
        return venvs.python(self.packages, lambda text: print(text, file=sys.stderr))

    def words(self, *said: object) -> list[str]:
        """A command of its side."""
        return [self.python, "-m", "bench.peers", self.module, *map(str, said)]

    def worker_words(self) -> list[list[str]]:
        """The programs that make two worker processes."""
        if self.consumer is None:
            return [self.words("work")] * WORKERS
        return [[self.python, *self.consumer]]


_PGQUEUER = Queue(
    "pgqueuer 1.6.0, batch 200",
    "pgqueuer_side",
    ("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"),
    brokers.postgres,
    100_000,
    {"BENCH_BATCH": "200"},
)
_ANALYZED = replace(_PGQUEUER, who="pgqueuer, batch 200, analyzed", env={"BENCH_BATCH": "200", "BENCH_ANALYZE": "1"})
_BY_TEN = replace(_PGQUEUER, who="pgqueuer, batch 10 (default)", drained=30_000, env={"BENCH_BATCH": "10"})
_PROCRASTINATE = Queue(
    "procrastinate 3.10.0",
    "procrastinate_side",
    ("procrastinate==3.10.0", "psycopg[binary]==3.3.9"),
    brokers.postgres,
    3_000,
)
_ON_REDIS = ("redis==8.1.0", "dramatiq==2.2.1", "huey==3.5.4", "taskiq==0.13.0", "taskiq-redis==1.2.4")
_TASKIQ = Queue(
    "taskiq 0.13.0 (Redis, not durable)",
    "taskiq_side",
    _ON_REDIS,
    brokers.redis,
    15_000,
    consumer=("-m", "taskiq", "worker", "bench.peers.taskiq_side:broker", "--workers", str(WORKERS)),
)
_DRAMATIQ = replace(
    _TASKIQ,
    who="dramatiq 2.2.1 (Redis, not durable)",
    module="dramatiq_side",
    consumer=("-m", "dramatiq", "bench.peers.dramatiq_side", "--processes", str(WORKERS)),
)
_HUEY = replace(
    _TASKIQ,
    who="huey 3.5.4 (Redis, not durable)",
    module="huey_side",
    drained=12_000,
    consumer=("-m", "huey.bin.huey_consumer", "bench.peers.huey_side.huey", "-w", str(WORKERS), "-k", "process"),
)

_OF_REDIS = (_TASKIQ, _DRAMATIQ, _HUEY)
DRAINED = (_PGQUEUER, _ANALYZED, _BY_TEN, _PROCRASTINATE, *_OF_REDIS)
BULK = (replace(_PGQUEUER, who="pgqueuer 1.6.0"), replace(_PROCRASTINATE, drained=20_000))
MANY = (replace(_PGQUEUER, who="pgqueuer 1.6.0, pool of 16"),)
ALONE = (replace(_PGQUEUER, who="pgqueuer 1.6.0"), _PROCRASTINATE, *_OF_REDIS)
LATENCY = (_BY_TEN, _PGQUEUER, _PROCRASTINATE, *_OF_REDIS)


def drain(stage: Stage, queue: Queue) -> Sample:
    """Enqueued first, then run by two worker processes; from the first 2 % begun to the last one begun."""
    count = int(queue.drained * stage.counts.share)
    with _set_up(stage, queue) as (env, tally, directory):
        finished(queue.words("bulk", count), SUBMIT_SECONDS, env)
        with _working(queue, env, directory):
            rate = watch(tally, count).per_second(count)
        fewer = "" if count == stage.counts.drain else f"{count:,} tasks; "
        return Sample({"drain": rate}, f"{fewer}{insist_on_once(tally, count)}".strip("; "))


def bulk(stage: Stage, queue: Queue) -> Sample:
    """Its bulk call, a thousand tasks each."""
    count = int(queue.drained * stage.counts.share)
    with _set_up(stage, queue) as (env, _, _):
        note = "" if count == stage.counts.bulk else f"{count:,} tasks"
        return Sample({"submit": json.loads(finished(queue.words("bulk", count), SUBMIT_SECONDS, env))}, note)


def many(stage: Stage, queue: Queue, clients: int) -> Sample:
    """Single calls, many in flight."""
    with _set_up(stage, queue) as (env, _, _):
        said = json.loads(finished(queue.words("many", stage.counts.single, clients), SUBMIT_SECONDS, env))
        return Sample({"submit": said["per_second"], "call p99": percentile(said["calls"], 99)})


def alone(stage: Stage, queue: Queue) -> Sample:
    """Single calls, one after another."""
    from bench.rows.single import of_calls

    with _set_up(stage, queue) as (env, _, _):
        return of_calls(json.loads(finished(queue.words("alone", stage.counts.alone), SUBMIT_SECONDS, env)))


def latency(stage: Stage, queue: Queue) -> Sample:
    """From submit to start on idle workers."""
    from bench.rows.latency import of_starts

    with _set_up(stage, queue) as (env, _, directory), _working(queue, env, directory):
        time.sleep(BOOT_SECONDS)
        return of_starts(json.loads(finished(queue.words("latency", stage.counts.latency), SUBMIT_SECONDS, env)))


@contextmanager
def _working(queue: Queue, env: Mapping[str, str], directory: Path) -> Generator[None]:
    """Two worker processes; when what they are for fails, their last words say why."""
    log = directory / "workers.log"
    with ExitStack() as workers:
        for words in queue.worker_words():
            workers.enter_context(running(words, log, env))
        try:
            yield
        except Unmeasurable as error:
            raise Unmeasurable(f"{error}; its workers said: {last_words(log.read_text())}") from None


@contextmanager
def _set_up(stage: Stage, queue: Queue) -> Generator[tuple[dict[str, str], Tally, Path]]:
    """A fresh broker with the queue's tables in it."""
    queue.words()  # installs it
    with stage.place() as (directory, tally), queue.broker(directory) as address:
        env = environment(BENCH_BROKER=address, **queue.env, **{VARIABLE: str(tally.path)})
        finished(queue.words("install"), SUBMIT_SECONDS, env)
        yield env, tally, directory
