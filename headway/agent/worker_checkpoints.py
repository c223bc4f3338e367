"""How a function in a worker writes checkpoints: into the directory that its agent stores."""

from __future__ import annotations

import json
import os
import time

ROOT = "HEADWAY_CHECKPOINTS"
"""The variable that names the directory with those of all functions of the agent."""
NAME = ".headway-checkpoint"
READY = ".ready"
STATE = "state.json"
LOOK_SECONDS = 0.01


def directory_of(task: int, attempt: int) -> str:
    """Where an attempt writes its checkpoints."""
    return f"{os.environ.get(ROOT, '')}/{task}-{attempt}/{NAME}"


def state_in(directory: str) -> object:
    """What was said the last time; None when nothing was."""
    try:
        with open(f"{directory}/{STATE}", encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None


def keep(directory: str, state: object, *, waits: bool) -> None:
    """Writes what is said, and waits until all of the directory is stored."""
    if state is not None:
        with open(f"{directory}/{STATE}.part", "w", encoding="utf-8") as file:
            json.dump(state, file)
        os.replace(f"{directory}/{STATE}.part", f"{directory}/{STATE}")
    if not waits:
        return
    ready = f"{directory}/{READY}"
    with open(ready, "w", encoding="utf-8"):
        pass
    while os.path.exists(ready):
        time.sleep(LOOK_SECONDS)
