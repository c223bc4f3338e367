"""Headway runs tasks in time: durably, on whatever machine fits, for many tenants at once.

    1. A client submits a task: a command, a script or a Python function      sdk/ cli/
    2. the gateway checks it, charges the plan and commits it                 gateway/
    3. PostgreSQL keeps it; nothing else is the truth                         store/
    4. the leader of the pool orders what is ready and places it              core/ scheduler/
    5. claims it in one fenced statement and sends it to a node               scheduler/
    6. the agent runs it, holds it to its caps, keeps its log                 agent/
    7. its end is written once, whoever reports it how often                  scheduler/ store/
    8. and the client learns of it                                            gateway/ sdk/

Importing this package costs a worker nothing: every public name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headway.core.checkpoints import CheckpointRule as _CheckpointRule
    from headway.core.context import Context as Context
    from headway.core.task import RetryRule as _RetryRule
    from headway.core.task import Submission as Submission
    from headway.sdk.app import App as App
    from headway.sdk.client import AsyncClient as AsyncClient
    from headway.sdk.client import Client as Client
    from headway.sdk.errors import HeadwayError as HeadwayError
    from headway.sdk.errors import SubmissionError as SubmissionError
    from headway.sdk.errors import TaskCancelled as TaskCancelled
    from headway.sdk.errors import TaskFailed as TaskFailed
    from headway.sdk.handle import Handle as Handle
    from headway.sdk.handle import Handles as Handles
    from headway.sdk.task import Task as Task

    Checkpoint = _CheckpointRule
    Retry = _RetryRule

_HOMES = {
    "App": ("headway.sdk.app", "App"),
    "AsyncClient": ("headway.sdk.client", "AsyncClient"),
    "Checkpoint": ("headway.core.checkpoints", "CheckpointRule"),
    "Client": ("headway.sdk.client", "Client"),
    "Context": ("headway.core.context", "Context"),
    "Handle": ("headway.sdk.handle", "Handle"),
    "Handles": ("headway.sdk.handle", "Handles"),
    "HeadwayError": ("headway.sdk.errors", "HeadwayError"),
    "Retry": ("headway.core.task", "RetryRule"),
    "Submission": ("headway.core.task", "Submission"),
    "SubmissionError": ("headway.sdk.errors", "SubmissionError"),
    "Task": ("headway.sdk.task", "Task"),
    "TaskCancelled": ("headway.sdk.errors", "TaskCancelled"),
    "TaskFailed": ("headway.sdk.errors", "TaskFailed"),
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'headway' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    found = globals()[name] = getattr(import_module(module), attribute)
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
