"""`headway simulate` as people call it: what it prints, what it writes, how it says no."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.scenarios import EXAMPLES

QUICK = EXAMPLES / "quick.yml"


def simulate(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headway.cli", "simulate", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


def test_a_table_is_printed_and_a_report_written(tmp_path: Path):
    done = simulate(QUICK, cwd=tmp_path)
    assert done.returncode == 0
    assert "deadline misses" in done.stdout
    assert "report: quick.html" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["quick.html"]
    first = (tmp_path / "quick.html").read_bytes()
    assert simulate(QUICK, "--report", "again.html", cwd=tmp_path).returncode == 0
    assert (tmp_path / "again.html").read_bytes() == first


def test_more_nodes_more_work_and_other_chances_are_asked_for_by_options(tmp_path: Path):
    def found(*options: object) -> dict[str, int]:
        return json.loads(simulate(QUICK, "--no-report", "-o", "json", *options, cwd=tmp_path).stdout)

    once, twice, other = found(), found("--nodes", 8, "--load", 2), found("--seed", 9)
    assert (once["nodes"], twice["nodes"]) == (4, 8)
    assert 1.5 < twice["arrived"] / once["arrived"] < 3  # most of it comes in bursts of very different sizes
    assert other["arrived"] != once["arrived"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: x\nhorzon: 1h\n", "scenario.yml:2: horzon: unknown key; did you mean horizon?"),
        ("name: [x\n", "scenario.yml:"),
        ("", "expected keys such as"),
        ("name: x\nhorizon: 1h\nnodes: 7\n", "scenario.yml:3: nodes: Expected"),
    ],
)
def test_what_is_wrong_with_a_scenario_is_said_with_its_line_and_is_a_usage_error(text: str, says: str, tmp_path: Path):
    (tmp_path / "scenario.yml").write_text(text)
    done = simulate("scenario.yml", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("options", [["--policy", "fastest"], ["--nodes", "0"], ["--load", "-1"], ["--seed", "x"]])
def test_options_are_checked(options: list[str], tmp_path: Path):
    assert simulate(QUICK, *options, cwd=tmp_path).returncode == 2


def test_several_scenarios_stand_one_below_the_other(tmp_path: Path):
    (tmp_path / "other.yml").write_text(QUICK.read_text().replace("name: quick", "name: other", 1))
    done = simulate(QUICK, "other.yml", "--compare", cwd=tmp_path)
    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert names == ["SCENARIO", *["quick"] * 4, *["other"] * 4]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.html", "other.yml", "quick.html"]
    assert simulate(QUICK, "other.yml", "--report", "one.html", cwd=tmp_path).returncode == 2


def test_a_report_that_cannot_be_written_is_an_error_and_nothing_is_left_behind(tmp_path: Path):
    done = simulate(QUICK, "--report", tmp_path / "nowhere" / "report.html", cwd=tmp_path)
    assert done.returncode == 1
    assert "the report cannot be written" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_simulation_tells_what_was_reached(tmp_path: Path):
    command = [sys.executable, "-m", "headway.cli", "simulate", str(EXAMPLES / "week.yml"), "--nodes", "100"]
    with subprocess.Popen(
        [*command, "--load", "0.05"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        assert "simulating" in running.stderr.readline()
        os.kill(running.pid, signal.SIGINT)
        said, told = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "interrupted: only" in told
    assert "deadline misses" in said
    assert "Interrupted: this is a part of it" in (tmp_path / "week.html").read_text()
