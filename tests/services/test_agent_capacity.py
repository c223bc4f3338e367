"""What a node offers: no more than its control groups leave, less what it keeps; GPUs lent once at a time and told."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from headway import cli
from headway.agent import gpus
from headway.agent.agent import Agent
from headway.agent.capacity import MIB, detect, offered, reserved
from headway.agent.gpus import Gpus
from headway.agent.sandbox.cgroups import Cgroups, Limits
from headway.wire import Outcome
from tests.services.agent_leader import a_leader, a_shell, an_agent, key_of, sandboxed, settings

GIB = 1024 * MIB
MINE = len(os.sched_getaffinity(0)) * 1000


def written(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")


@pytest.mark.parametrize(
    ("own", "files", "cpu", "memory"),
    [
        (
            "0::/a/b\n",
            {
                "cgroup.controllers": "cpu memory",
                "a/cpu.max": "50000 100000",
                "a/memory.max": "max",
                "a/b/cpu.max": "max 100000",
                "a/b/memory.max": str(64 * MIB),
            },
            500,
            64 * MIB,
        ),
        (
            "4:memory:/a/b\n1:cpu,cpuacct:/c\n",
            {
                "memory/a/memory.limit_in_bytes": str(32 * MIB),
                "memory/a/b/memory.limit_in_bytes": str(2**63 - 4096),
                "cpu/c/cpu.cfs_quota_us": "25000",
                "cpu/c/cpu.cfs_period_us": "50000",
            },
            500,
            32 * MIB,
        ),
        (
            "4:memory:/where/the/host/sees/it\n0::/\n",
            {"memory/memory.limit_in_bytes": str(16 * MIB), "cpu/cpu.cfs_quota_us": "-1", "unified/cpu.max": "max"},
            MINE,
            16 * MIB,
        ),
        ("", {}, MINE, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")),
    ],
    ids=["v2, by the group above", "v1, each controller elsewhere", "hybrid in a container", "no groups"],
)
def test_no_more_is_found_than_every_control_group_above_leaves(
    tmp_path: Path, own: str, files: dict[str, str], cpu: int, memory: int
):
    written(tmp_path, files)
    (tmp_path / "own").write_text(own)
    found = detect(tmp_path / "data", tmp_path, tmp_path / "own")
    assert (found["cpu"], found["memory"]) == (min(cpu, MINE), memory)


def test_a_machine_keeps_some_memory_and_disk_for_itself():
    found = {"cpu": 8000, "memory": 32 * GIB, "disk": 1000 * GIB}
    kept = reserved(found, {})
    assert kept == {"memory": 32 * GIB // 20, "disk": 10 * GIB}
    assert offered(found, {}, kept)["cpu"] == 8000
    assert reserved(found | {"memory": 1 * GIB}, {})["memory"] == 128 * MIB
    assert reserved(found | {"memory": 200 * MIB}, {})["memory"] == 100 * MIB, "never more than half"
    assert reserved(found, {"cpu": 500, "memory": 0})["memory"] == 0


def test_what_is_found_can_be_capped_and_is_capped_after_the_reserve():
    found = {"cpu": 8000, "memory": 8 * GIB, "disk": 0}
    assert offered(found, {"cpu": 4000, "memory": 64 * GIB, "gpu": 3}, {"cpu": 1000, "memory": GIB, "disk": GIB}) == {
        "cpu": 4000,
        "memory": 7 * GIB,
        "disk": 0,
    }


async def test_an_agent_offers_what_is_left(tmp_path: Path):
    async with a_leader() as leader:
        said = replace(settings(leader, tmp_path / "n1"), capacity=None)
        agent = Agent(replace(said, at_most={"cpu": 700}, reserve={"memory": 3 * GIB // 2}))
        running = asyncio.create_task(agent.run())
        await leader.until(lambda: leader.hellos)
        found = detect(tmp_path)
        assert leader.hellos[0].capacity["cpu"] == 700
        assert leader.hellos[0].capacity["memory"] == found["memory"] - 3 * GIB // 2
        running.cancel()
        await asyncio.wait([running], timeout=20)


@pytest.mark.parametrize(
    ("names", "ids"),
    [
        (["nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "dri/renderD128"], ["0", "1", "10"]),
        (["dri/card0", "dri/renderD128", "dri/renderD129"], ["0", "1"]),
        (["null", "nvidiactl"], []),
    ],
)
def test_gpus_are_found_by_their_devices(tmp_path: Path, names: list[str], ids: list[str]):
    written(tmp_path, dict.fromkeys(names, ""))
    assert gpus.detect(tmp_path) == ids


def test_a_sandbox_lets_in_the_devices_that_were_lent_and_no_others(tmp_path: Path):
    written(tmp_path, dict.fromkeys(["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"], ""))
    assert {path.name for path in gpus.devices(["1"], tmp_path)} == {"nvidia1", "nvidiactl", "nvidia-uvm"}
    assert gpus.devices([], tmp_path) == []
    assert gpus.devices(["GPU-5f3c"], tmp_path) == []


def test_who_has_no_gpu_is_told_so_where_there_are_some():
    node = Gpus(["0", "1"])
    lent = node.take(1)
    assert lent is not None and lent == ["0"]
    assert node.variables(lent)["CUDA_VISIBLE_DEVICES"] == node.variables(lent)["HEADWAY_GPUS"] == "0"
    assert node.variables([])["CUDA_VISIBLE_DEVICES"] == ""
    assert node.take(2) is None
    node.give(lent)
    assert node.take(2) == ["1", "0"]
    assert Gpus().variables([]) == {}


async def test_two_attempts_at_a_time_never_have_the_same_gpu(tmp_path: Path):
    holds = 'echo "\\"$HEADWAY_GPUS $CUDA_VISIBLE_DEVICES\\"" > $HEADWAY_OUTPUT; read line < {0} || true'
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1", gpu=2):
        gates = [tmp_path / name for name in "ab"]
        for gate in gates:
            os.mkfifo(gate)
        tasks = [a_shell(holds.format(gate), gpu=1) for gate in gates]
        await leader.dispatch(*tasks)
        opened = [await asyncio.to_thread(gate.open, "w") for gate in gates]  # both run now
        for gate in opened:
            gate.close()
        await leader.until(lambda: all(leader.ending(key_of(task)) for task in tasks))
        told = [ending.result or "" for task in tasks if (ending := leader.ending(key_of(task)))]
        assert sorted(map(json.loads, told)) == ["0 0", "1 1"]
        both = await leader.run_one(a_shell('echo "[$HEADWAY_GPUS]" > $HEADWAY_OUTPUT', gpu=2))
        assert sorted(json.loads(both.result or "")) == [0, 1], "they came back"
        none = await leader.run_one(a_shell('test "$CUDA_VISIBLE_DEVICES" = "" && test "${HIP_VISIBLE_DEVICES+set}"'))
        assert none.outcome == Outcome.DONE, none


async def test_what_an_attempt_writes_and_its_children_read_is_counted(tmp_path: Path):
    writes = "dd if=/dev/zero of=big bs=1M count=4 conv=fsync 2>/dev/null; cat /proc/self/cgroup"
    async with a_leader() as leader, an_agent(leader, tmp_path / "n1", memory=256 * MIB):
        ending = await leader.run_one(a_shell(writes, memory=128 * MIB))
        assert ending.usage is not None
        assert ending.usage["io_written"] >= 4 * MIB
        nothing = await leader.run_one(a_shell(":", memory=128 * MIB))
        assert nothing.usage is not None and nothing.usage["io_written"] < MIB, "another attempt counts from nothing"


def test_the_io_of_a_group_is_summed_over_devices(tmp_path: Path):
    group = Cgroups("v2", {"io": tmp_path}, frozenset({"io"}), {}).create("1", Limits())
    (tmp_path / "1" / "io.stat").write_text("8:0 rbytes=1 wbytes=20 rios=1\n259:0 rbytes=300 wbytes=4000 dbytes=9\n")
    assert (group.usage().io_read, group.usage().io_written) == (301, 4020)
    group = Cgroups("v1", {"blkio": tmp_path}, frozenset(), {}).create("2", Limits())
    lines = "8:0 Read 5\n8:0 Write 60\n8:0 Total 65\n259:0 Read 700\n259:0 Write 0\nTotal 765\n"
    (tmp_path / "2" / "blkio.throttle.io_service_bytes").write_text(lines)
    assert (group.usage().io_read, group.usage().io_written) == (705, 60)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--gpus", "0,0"], "each once"),
        (["--gpus", ""], "expected ids"),
        (["--at-most", "cpu=many"], "--at-most cpu=many"),
        (["--capacity", "cpu=2", "--reserve", "memory=1Gi"], "leave out --at-most and --reserve"),
    ],
)
def test_an_agent_refuses_what_it_cannot_mean(options: list[str], said: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        cli.main(["agent", *options])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


async def test_a_sandboxed_task_sees_the_devices_of_its_gpus_and_no_others(tmp_path: Path):
    if os.geteuid() != 0:
        pytest.skip("devices are made by root")
    place = Path(tempfile.mkdtemp())  # which, unlike pytest's, others may pass through, as they may through /dev
    place.chmod(0o755)
    files = {number: place / f"gpu{number}" for number in ("0", "1")}
    for path in files.values():
        os.mknod(path, 0o20666, os.makedev(1, 3))  # another /dev/null
        path.chmod(0o666)
    line = "echo $HEADWAY_GPUS $(cd /dev; ls -d gpu* 2> /dev/null); for f in /dev/gpu*; do echo x > $f || exit 1; done"
    async with a_leader() as leader:
        said = replace(
            settings(leader, tmp_path / "n1", sandbox=True, gpu=2),
            gpus=("0", "1"), gpu_devices={number: (path,) for number, path in files.items()},
        )  # fmt: skip
        running = asyncio.create_task(Agent(said).run())
        try:
            await leader.until(lambda: leader.hellos)
            for wanted, seen in ((1, b"0 gpu0\n"), (2, b"1,0 gpu0 gpu1\n")):
                ending = await leader.run_one(sandboxed(a_shell(line, gpu=wanted)))
                assert (ending.exit_code, ending.tail) == (0, seen), (ending.message, ending.tail)
            none = await leader.run_one(sandboxed(a_shell("ls /dev/gpu*")))
            assert b"No such file" in none.tail
        finally:
            running.cancel()
            await asyncio.wait([running], timeout=20)
            shutil.rmtree(place)
