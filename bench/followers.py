"""A client that follows the log of a task, several times at once, and prints how many ms late each line was."""

from __future__ import annotations

import argparse
import json
import os
import threading
import time

from headway.core.task import Submission
from headway.sdk.client import Client

PRINTING = "for n in $(seq {lines}); do date +%s.%N; sleep 0.1; done"


def main() -> None:
    """Submits, follows, prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    said = parser.parse_args()
    with Client(os.environ["HEADWAY_URL"], os.environ["HEADWAY_KEY"]) as client:
        task = client.submit(Submission(command=["/bin/sh", "-c", PRINTING.format(lines=said.lines)])).id
        late: list[float] = []
        threads = [threading.Thread(target=follow, args=(client, task, late)) for _ in range(said.count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(late) == said.lines * said.count, f"{len(late)} lines came of {said.lines} to each of {said.count}"
    print(json.dumps(late))


def follow(client: Client, task: str, late: list[float]) -> None:
    """Notes when each line came."""
    held = b""
    for piece in client.logs(task, follow=True):
        now = time.time()
        *lines, held = (held + piece).split(b"\n")
        late += [(now - float(line)) * 1000 for line in lines]


if __name__ == "__main__":
    main()
