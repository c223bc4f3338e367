"""What a client may say, and everything that is refused."""

from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest

from headway.core.refusal import Refused
from headway.core.task import Admitted, RetryRule, Spec, Submission, Tier, admit

TIERS = {"basic": Tier("basic", {"cpu": 500, "memory": 2**28}, 300_000, 3_600_000)}


def refusals(**said: object) -> list[str]:
    verdict = admit(Submission(**said), TIERS)  # pyright: ignore[reportArgumentType]
    assert isinstance(verdict, list), verdict
    assert all(isinstance(found, Refused) for found in verdict)
    return [found.path for found in verdict]


def admitted(**said: object) -> Admitted:
    verdict = admit(Submission(**said), TIERS)  # pyright: ignore[reportArgumentType]
    assert isinstance(verdict, Admitted), verdict
    return verdict


def test_a_command_takes_what_it_left_out_from_its_tier():
    task = admitted(command=["/bin/echo", "hello"])
    assert (task.name, task.kind, task.execution_cap_ms, task.max_attempts) == ("echo", "command", 300_000, 1)
    assert dict(task.needs) == {"cpu": 500, "memory": 2**28}


def test_resources_said_override_the_tier():
    task = admitted(command=["x"], resources={"cpu": 2, "memory": "1Gi", "gpu": 1})
    assert dict(task.needs) == {"cpu": 2000, "memory": 2**30, "gpu": 1}


def test_a_function_needs_a_worker_slot():
    task = admitted(function="shop:charge", args=[42], kwargs={"note": "x"})
    assert dict(task.needs) == {"workers": 1}
    assert msgspec.json.decode(task.spec, type=Spec).args == [42]


@pytest.mark.parametrize(
    ("said", "paths"),
    [
        ({}, ["command"]),
        ({"command": ["x"], "function": "a:b"}, ["command"]),
        ({"command": []}, ["command"]),
        ({"command": [""]}, ["command"]),
        ({"command": ["x"], "tier": "gold"}, ["tier"]),
        ({"command": ["x"], "kwargs": {"a": 1}}, ["kwargs"]),
        ({"command": ["x"], "args": ["y"]}, ["args"]),
        ({"command": ["x"], "execution_cap": "2h"}, ["execution_cap"]),
        ({"command": ["x"], "execution_cap": 0}, ["execution_cap"]),
        ({"command": ["x"], "cap_grace": "11m"}, ["cap_grace"]),
        ({"command": ["x"], "env": {"1A": "x"}}, ["env.1A"]),
        ({"command": ["x"], "env": {"HEADWAY_TASK_ID": "x"}}, ["env.HEADWAY_TASK_ID"]),
        ({"command": ["x"], "resources": {"cpu": -1}}, ["resources.cpu"]),
        ({"command": ["x"], "resources": {"workers": 1}}, ["resources.workers"]),
        ({"command": ["x"], "resources": {"gpu": 1.5}}, ["resources.gpu"]),
        ({"function": "nocolon"}, ["function"]),
        ({"function": "a:b", "resources": {"cpu": 1}}, ["resources"]),
        ({"script": "encode.sh"}, ["script"]),
        ({"command": ["x"], "script_path": "x.sh"}, ["script_path"]),
        ({"command": ["x"], "tags": {"": "v"}}, ["tags."]),
        ({"command": ["x"], "name": "\n"}, ["name"]),
        ({"command": ["x"], "resources": {f"r{n}": 1 for n in range(33)}}, ["resources"]),
        ({"function": "a:" + "b" * 1000}, ["function"]),
        (
            {"command": ["x"], "eligible_at": datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))},
            ["eligible_at"],
        ),
        ({"command": ["x"], "retry": RetryRule(max_attempts=0, factor=0.5)}, ["retry.max_attempts", "retry.factor"]),
    ],
)
def test_what_is_wrong_is_named_by_its_path(said: dict[str, object], paths: list[str]):
    assert refusals(**said) == paths


def test_an_hour_is_kept_in_utc():
    task = admitted(command=["x"], eligible_at=datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=5))))
    assert task.eligible_at is not None
    assert (task.eligible_at.tzinfo, task.eligible_at.hour) == (UTC, 19)


def test_everything_that_is_wrong_is_said_at_once():
    assert len(refusals(command=["x"], delay_tolerance="soon", execution_cap="9h", resources={"disk": "big"})) == 3
