"""Ports: real numbers, really free, lent once at a time and told to the process."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from headway import cli
from headway.agent.agent import Agent
from headway.agent.ports import Ports
from headway.core.task import Spec
from headway.wire import Assignment, Outcome
from tests.services.agent_leader import FakeLeader, a_leader, a_shell, settings

WHERE = 'echo "{\\"http\\": $HEADWAY_PORT_HTTP, \\"all\\": $HEADWAY_PORTS}" > $HEADWAY_OUTPUT'


def a_range(count: int) -> tuple[int, int]:
    """Numbers in a row that nobody listens on now."""
    apart = 20_000 + os.getpid() % 90 * 100  # tests in other processes look at the same time
    for first in range(apart, apart + 1000, count):
        try:
            for number in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("", number))
        except OSError:
            continue
        return first, first + count - 1
    raise AssertionError("no range of ports is free on this machine")


@asynccontextmanager
async def a_node(leader: FakeLeader, directory: Path, first: int, last: int) -> AsyncIterator[None]:
    agent = Agent(replace(settings(leader, directory), ports=(first, last), resources={"gpu": 2}))
    running = asyncio.create_task(agent.run())
    try:
        await leader.until(lambda: leader.hellos)
        yield
    finally:
        running.cancel()
        await asyncio.wait([running], timeout=20)


def with_ports(line: str, names: list[str], count: int = 0) -> Assignment:
    task = a_shell(line)
    spec = msgspec.structs.replace(msgspec.json.decode(task.spec, type=Spec), ports=names)
    needs = {**task.needs, "ports": len(names) or count}
    return msgspec.structs.replace(task, needs=needs, spec=msgspec.json.encode(spec).decode())


def told(result: str | None) -> dict[str, int]:
    assert result is not None
    said = json.loads(result)
    assert said["all"]["http"] == said["http"]
    return said["all"]


async def test_a_process_is_told_its_ports_by_name(tmp_path: Path):
    first, last = a_range(4)
    async with a_leader() as leader, a_node(leader, tmp_path / "n1", first, last):
        assert (leader.hellos[0].capacity["ports"], leader.hellos[0].capacity["gpu"]) == (4, 2)
        ending = await leader.run_one(with_ports(WHERE, ["http", "admin"]))
        ports = told(ending.result)
        assert set(ports) == {"http", "admin"}
        assert len(set(ports.values())) == 2 and all(first <= number <= last for number in ports.values())


async def test_ports_without_names_are_numbered(tmp_path: Path):
    async with a_leader() as leader, a_node(leader, tmp_path / "n1", *a_range(4)):
        line = 'echo "[$HEADWAY_PORT_0, $HEADWAY_PORT_1, $HEADWAY_PORTS]" > $HEADWAY_OUTPUT'
        ending = await leader.run_one(with_ports(line, [], 2))
        assert ending.result is not None
        one, other, everything = json.loads(ending.result)
        assert everything == {"0": one, "1": other}


async def test_a_task_that_asks_for_none_is_told_of_none(tmp_path: Path):
    async with a_leader() as leader, a_node(leader, tmp_path / "n1", *a_range(4)):
        assert (await leader.run_one(a_shell("env | grep -c HEADWAY_PORT; true"))).tail == b"0\n"


async def test_no_number_is_lent_to_two_at_a_time_and_each_comes_back(tmp_path: Path):
    async with a_leader() as leader, a_node(leader, tmp_path / "n1", *a_range(4)):
        meet = tmp_path / "go"
        line = f"{WHERE}; until [ -e {meet} ]; do sleep 0.02; done"
        together = [with_ports(line, ["http", "admin"]) for _ in range(2)]
        third = with_ports(WHERE, ["http", "a", "b", "c"])
        await leader.dispatch(*together, third)
        await leader.until(lambda: len(leader.started) == 2)
        meet.touch()
        endings = await leader.run(*together, third)
        taken = [number for ending in endings[:2] for number in told(ending.result).values()]
        assert len(set(taken)) == 4
        assert sorted(told(endings[2].result).values()) == sorted(taken)


async def test_a_killed_attempt_gives_its_ports_back(tmp_path: Path):
    async with a_leader() as leader, a_node(leader, tmp_path / "n1", *a_range(2)):
        for _ in range(3):
            task = with_ports("exec sleep 60", ["http", "admin"])
            await leader.dispatch(task)
            await leader.until(lambda task=task: (7, task.task, 1) in leader.started)
            await leader.kill(task)
            await leader.until(lambda task=task: leader.ending((7, task.task, 1)))  # type: ignore[arg-type]
        assert (await leader.run_one(with_ports(WHERE, ["http", "admin"]))).outcome == Outcome.DONE


async def test_ports_that_strangers_hold_are_passed_over_and_missed(tmp_path: Path):
    first, last = a_range(2)
    async with a_leader() as leader, a_node(leader, tmp_path / "n1", first, last):
        with socket.create_server(("127.0.0.1", first)):
            assert told((await leader.run_one(with_ports(WHERE, ["http"]))).result) == {"http": last}
            ending = await leader.run_one(with_ports(WHERE, ["http", "admin"]))
            assert (ending.outcome, ending.code) == (Outcome.LOST, "no_ports")
            assert "--ports LOW-HIGH" in ending.message
        assert (await leader.run_one(with_ports(WHERE, ["http", "admin"]))).outcome == Outcome.DONE


def test_what_comes_back_is_lent_last():
    first, last = a_range(4)
    ports = Ports(first, last)
    taken = ports.take(2)
    assert taken == [first, first + 1]
    ports.give([first, first + 1])
    assert ports.take(2) == [first + 2, first + 3]
    assert ports.take(3) is None
    assert ports.take(2) == taken


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--ports", "20000"], "LOW-HIGH"),
        (["--ports", "300-200"], "LOW-HIGH"),
        (["--ports", "0-70000"], "LOW-HIGH"),
        (["--capacity", "ports=3"], "--ports LOW-HIGH"),
        (["--resource", "workers=3"], "--workers"),
        (["--resource", "gpu=-1"], "from 0 on"),
        (["--resource", "gpu=some"], "whole number"),
    ],
)
def test_an_agent_says_what_is_wrong_with_what_it_offers(
    words: list[str], named: str, capsys: pytest.CaptureFixture[str]
):
    assert cli.execute(["agent", "--url", "http://127.0.0.1:1", "--key", "hw_a_b", *words]) == 2
    assert named in capsys.readouterr().err
