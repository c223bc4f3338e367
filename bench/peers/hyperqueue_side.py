"""HyperQueue: `python -m bench.peers.hyperqueue_side DIRECTORY COUNT SLOTS` prints tasks a second."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from hyperqueue import Job, LocalCluster  # pyright: ignore[reportMissingImports]
from hyperqueue.cluster import WorkerConfig  # pyright: ignore[reportMissingImports]


def main(directory: Path, count: int, slots: int) -> None:
    """Submits all of them as one job; what they print is kept in files, its default. It tells of a job's end only once
    a second, so the clock runs from the first of those files to the last.
    """
    with LocalCluster(str(directory / "server"), WorkerConfig(cores=slots)) as cluster:
        client = cluster.client()
        first = Job(default_workdir=directory / "first")
        first.program(["/bin/true"])
        client.wait_for_jobs([client.submit(first)])
        job = Job(default_workdir=directory / "work")
        for _ in range(count):
            job.program(["/bin/true"])
        submitted = client.submit(job)
        seen = [_when_there(directory / "work" / f"{number}.stdout") for number in range(count)]
        client.wait_for_jobs([submitted])
        print(json.dumps((count - 1) / (seen[-1] - seen[0])))


def _when_there(file: Path) -> float:
    while not file.exists():
        time.sleep(0.01)
    return time.perf_counter()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
