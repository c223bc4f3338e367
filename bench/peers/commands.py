"""Who else runs programs: HyperQueue, xargs, and the bare system call."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from bench import venvs
from bench.contest import Unmeasurable
from bench.figures import Sample
from bench.programs import environment, finished
from bench.stage import Stage
from headway.agent.sandbox import bubblewrap

SECONDS = 120.0
AT_ONCE = 2
HYPERQUEUE = ("hyperqueue==0.27.0",)


class Peer(NamedTuple):
    """Runs `count` programs and answers how many a second."""

    who: str
    rate: Callable[[Stage, int], float]

    def measure(self, stage: Stage, metric: str) -> Sample:
        """One run."""
        return Sample({metric: self.rate(stage, stage.counts.processes)})


def _hyperqueue(stage: Stage, count: int) -> float:
    """An in-process server and worker, two slots; its wheel has no `hq` program."""
    python = venvs.python(HYPERQUEUE, lambda text: print(text, file=sys.stderr))
    with stage.place() as (directory, _):
        words = [python, "-m", "bench.peers.hyperqueue_side", str(directory), str(count), str(AT_ONCE)]
        return float(json.loads(finished(words, SECONDS, environment(HOME=str(directory))).splitlines()[-1]))


def _xargs(_: Stage, count: int) -> float:
    """`seq COUNT | xargs -P2 -n1 /bin/true`: nothing kept, no exit code of any task."""
    numbers = "\n".join(map(str, range(count))).encode()
    began = time.perf_counter()
    ended = subprocess.run(["xargs", f"-P{AT_ONCE}", "-n1", "/bin/true"], input=numbers, timeout=SECONDS, check=False)
    if ended.returncode != 0:
        raise Unmeasurable(f"xargs ended with {ended.returncode}")
    return count / (time.perf_counter() - began)


def _bare(_: Stage, count: int) -> float:
    """os.posix_spawn from a small Python process, two at once: what the machine gives."""
    words = [sys.executable, "-S", "-m", "bench.peers.spawn_side", str(count), str(AT_ONCE)]
    return float(finished(words, SECONDS))


def sandboxes(stage: Stage, metric: str) -> Sample:
    """`xargs -P2 bwrap … /bin/true` with every namespace: nothing kept, and no user, limits or files of its own."""
    found = bubblewrap.find()
    if isinstance(found, str):
        raise Unmeasurable(found)
    count = max(1, stage.counts.processes // 5)
    words = [
        found.path,
        "--unshare-all",
        "--die-with-parent",
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
    ]
    words = ["xargs", f"-P{AT_ONCE}", "-n1", *words, "--", "/bin/true"]
    numbers = "\n".join(map(str, range(count))).encode()
    began = time.perf_counter()
    ended = subprocess.run(words, input=numbers, timeout=SECONDS, check=False)
    if ended.returncode != 0:
        raise Unmeasurable(f"xargs ended with {ended.returncode}")
    return Sample({metric: count / (time.perf_counter() - began)})


PEERS = (
    Peer("hyperqueue 0.27.0 (in memory)", _hyperqueue),
    Peer("xargs -P2 (keeps nothing)", _xargs),
    Peer("bare posix_spawn, 2 at once", _bare),
)
