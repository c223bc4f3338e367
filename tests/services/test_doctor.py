"""The doctor tells the truth about this machine, and about machines that lack something."""

import json
import os
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from headway.cli import doctor as doctor_module
from headway.cli.doctor import (
    Finding,
    State,
    check_cgroups,
    check_clock,
    check_containers,
    check_cores,
    check_data_dir,
    check_files,
    check_loopback,
    check_memory,
    check_postgres_user,
    check_postgresql,
    check_python,
    check_running,
    check_sandbox,
    command,
    examine,
)
from headway.store.data_dir import Held, lock_data_dir


def test_every_finding_that_is_not_ok_says_what_to_do_next(tmp_path: Path):
    findings = examine(os.environ, tmp_path)
    assert len({finding.name for finding in findings}) == len(findings)
    assert not [finding for finding in findings if finding.state is not State.OK and not finding.next]


def test_a_machine_that_runs_these_tests_can_run_headway_dev(tmp_path: Path):
    assert not [finding for finding in examine(os.environ, tmp_path) if finding.prevents]


def test_json_goes_to_stdout_and_the_exit_code_is_zero(tmp_path: Path):
    result = CliRunner().invoke(command, ["-o", "json", "--data", str(tmp_path / "new")])
    assert result.exit_code == 0
    assert {"name", "state", "meaning", "next", "required"} == set(json.loads(result.stdout)[0])
    assert not (tmp_path / "new").exists(), "the doctor changes nothing"


def test_without_postgresql_the_exit_code_is_one_and_the_reason_is_said(tmp_path: Path):
    result = CliRunner().invoke(
        command, ["--data", str(tmp_path)], env={"HEADWAY_PG_BIN": "/nowhere", "COLUMNS": "200"}
    )
    assert result.exit_code == 1
    assert "HEADWAY_PG_BIN is /nowhere" in result.stdout
    assert "cannot work here: postgresql" in result.stderr


def test_only_a_missing_requirement_prevents():
    assert Finding("x", State.MISSING, "", required=True).prevents
    assert not Finding("x", State.MISSING, "").prevents
    assert not Finding("x", State.DEGRADED, "", required=True).prevents


def test_an_old_python_is_missing():
    assert check_python((3, 10)).state is State.MISSING
    assert check_python((3, 11)).state is State.OK


def test_postgresql_is_found_with_its_origin():
    assert check_postgresql(os.environ).state is State.OK


def test_somebody_can_run_postgresql(tmp_path: Path):
    assert not check_postgres_user(os.environ, tmp_path).prevents


def test_a_file_is_no_data_directory(tmp_path: Path):
    (tmp_path / "file").write_text("")
    assert check_data_dir(tmp_path / "file").prevents
    assert check_data_dir(tmp_path / "new" / "deeper").state is State.OK


def test_a_held_data_directory_names_its_holder(tmp_path: Path):
    assert check_running({}, tmp_path).state is State.OK
    lock = lock_data_dir(tmp_path)
    assert isinstance(lock, Held)
    held = check_running({}, tmp_path)
    assert held.state is State.DEGRADED
    assert f"process {os.getpid()}" in held.meaning
    lock.release()
    assert check_running({}, tmp_path).state is State.OK


def test_loopback_and_clock_work_here():
    assert check_loopback().state is State.OK
    assert not check_clock().prevents


def test_one_core_is_enough_but_not_good():
    assert check_cores(1).state is State.DEGRADED
    assert check_cores(2).state is State.OK


@pytest.mark.parametrize(("available_mib", "state"), [(100, State.MISSING), (512, State.DEGRADED), (4096, State.OK)])
def test_memory_is_graded(tmp_path: Path, available_mib: int, state: State):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(f"MemTotal: 9 kB\nMemAvailable: {available_mib * 1024} kB\n")
    assert check_memory(meminfo, tmp_path).state is state


def test_a_container_limit_counts_as_memory(tmp_path: Path):
    (tmp_path / "meminfo").write_text("MemAvailable: 16777216 kB\n")
    (tmp_path / "memory.max").write_text(f"{128 * 1024 * 1024}\n")
    assert check_memory(tmp_path / "meminfo", tmp_path).state is State.MISSING


@pytest.mark.parametrize(("soft", "state"), [(64, State.MISSING), (1024, State.DEGRADED), (-1, State.OK)])
def test_open_files_are_graded(soft: int, state: State):
    assert check_files(soft).state is state


@pytest.mark.parametrize(
    ("present", "kind"),
    [
        (["cgroup.controllers"], "v2"),
        (["memory/", "cpu/", "pids/"], "v1"),
        (["memory/", "cpu/", "pids/", "unified/cgroup.controllers"], "hybrid (v1 controllers)"),
        ([], None),
    ],
)
def test_cgroups_are_told_apart(tmp_path: Path, present: list[str], kind: str | None):
    for name in present:
        place = tmp_path / "cgroup" / name
        (place if name.endswith("/") else place.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            place.touch()
    (tmp_path / "own").write_text("0::/\n4:memory:/a\n2:cpu,cpuacct:/b\n1:pids:/c\n")
    finding = check_cgroups(tmp_path / "cgroup", tmp_path / "own")
    assert doctor_module.cgroup_kind(tmp_path / "cgroup") == kind
    assert finding.state is (State.OK if kind else State.MISSING)


def test_a_sandbox_is_tried_and_what_it_lacks_is_said(monkeypatch: pytest.MonkeyPatch):
    here = check_sandbox()
    if os.geteuid() == 0:
        assert here.state is State.OK
    else:
        assert here.state is State.DEGRADED and "the agent is not root" in here.meaning
    monkeypatch.setenv("HEADWAY_BWRAP", "/nowhere/bwrap")
    finding = check_sandbox()
    assert finding.state is State.MISSING and not finding.required
    assert "/nowhere/bwrap" in finding.meaning and "--profile trusted" in finding.next


def test_a_container_socket_must_answer(tmp_path: Path):
    path = tmp_path / "run/podman/podman.sock"
    path.parent.mkdir(parents=True)
    assert check_containers({}, tmp_path).state is State.MISSING
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        assert check_containers({}, tmp_path).state is State.DEGRADED
        server.listen()
        assert check_containers({}, tmp_path).state is State.OK
