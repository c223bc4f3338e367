"""The command line against the other side of its protocol."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from headway import cli
from headway.cli import trouble
from headway.sdk import errors, records
from tests.services.api_double import KEY, Api, serving


class Said(NamedTuple):
    code: int
    out: str
    err: str


Headway = Callable[..., Said]


@pytest.fixture(scope="module")
def served() -> Iterator[Api]:
    with serving(Api()) as served:
        yield served


@pytest.fixture
def api(served: Api) -> Api:
    served.forget()
    return served


@pytest.fixture
def headway(
    api: Api, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Headway:
    monkeypatch.setenv("HEADWAY_URL", api.url)
    monkeypatch.setenv("HEADWAY_KEY", KEY)
    monkeypatch.chdir(tmp_path)

    def headway(*words: str, stdin: bytes = b"") -> Said:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = cli.execute(words)
        out, err = capfdbinary.readouterr()
        return Said(code, out.decode(), err.decode())

    return headway


def test_run_prints_the_id_and_nothing_else(api: Api, headway: Headway):
    said = headway("run", "--tier", "premium", "--env", "A=1", "--resources", "cpu=2", "--", "echo", "-n", "hi")
    assert said == (0, "1000\n", "")
    assert api.tasks["1000"]["said"] == {
        "command": ["echo", "-n", "hi"],
        "tier": "premium",
        "env": {"A": "1"},
        "resources": {"cpu": 2},
    }


def test_how_a_task_is_retried_and_when_it_may_start_can_be_said(api: Api, headway: Headway):
    said = headway(
        *("run", "--delay-tolerance", "0", "--eligible-at", "2026-11-18T20:00:00Z", "--cap-grace", "1s"),
        *("--max-attempts", "3", "--backoff", "fixed", "--retry-initial", "250ms", "--", "true"),
    )
    assert said == (0, "1000\n", "")
    assert api.tasks["1000"]["said"] == {
        "command": ["true"],
        "delay_tolerance": "0",
        "eligible_at": "2026-11-18T20:00:00Z",
        "cap_grace": "1s",
        "retry": {"max_attempts": 3, "backoff": "fixed", "initial": "250ms"},
    }


def test_where_and_when_and_how_large_can_be_said_in_short(api: Api, headway: Headway):
    said = headway(
        *(
            "run",
            "--cpu",
            "0.5",
            "--memory",
            "64Mi",
            "--disk",
            "5Gi",
            "--gpu",
            "1",
            "--cap",
            "90s",
            "--cap-warning",
            "10s",
        ),
        *("--constraint", "zone=eu", "--constraint", "zone != moon", "--constraint", "arch in arm64, amd64"),
        *("--prefer", "ssd exists", "--spread", "web", "--exclusive", "--off-peak", "never"),
        *("--preemptible", "--checkpoint", "--checkpoint-grace", "5s", "--", "true"),
    )
    assert said == (0, "1000\n", "")
    assert api.tasks["1000"]["said"] == {
        "command": ["true"],
        "resources": {"cpu": 0.5, "memory": "64Mi", "disk": "5Gi", "gpu": 1},
        "execution_cap": "90s",
        "cap_warning": {"before": "10s"},
        "constraints": [
            {"label": "zone", "values": ["eu"]},
            {"label": "zone", "op": "!=", "values": ["moon"]},
            {"label": "arch", "op": "in", "values": ["arm64", "amd64"]},
        ],
        "preferred": [{"label": "ssd", "op": "exists"}],
        "spread": "web",
        "exclusive": True,
        "off_peak": "never",
        "preemptible": True,
        "checkpoint": {"grace": "5s"},
    }


@pytest.mark.parametrize("demand", ["zone", "zone in", "= eu", "zone ! eu", "zone=", ""])
def test_a_demand_that_is_none_is_told_how_to_be_said(api: Api, headway: Headway, demand: str):
    said = headway("run", "--constraint", demand, "--", "true")
    assert said.code == 2 and "'LABEL exists'" in said.err
    assert not api.requests


def test_amounts_that_contradict_each_other_are_refused_here(api: Api, headway: Headway):
    said = headway("run", "--cpu", "2", "--resources", "cpu=1", "--", "true")
    assert said.code == 2 and "--cpu 2 and --resources cpu=1" in said.err
    assert not api.requests


def test_a_start_can_be_said_from_now_on(api: Api, headway: Headway):
    before = datetime.now(UTC)
    assert headway("run", "--eligible-at", "+1h30m", "--", "true").code == 0
    later = datetime.fromisoformat(api.tasks["1000"]["said"]["eligible_at"]) - timedelta(hours=1.5)
    assert before - timedelta(milliseconds=1) <= later <= datetime.now(UTC)


@pytest.mark.parametrize("time", ["+soon", "tomorrow"])
def test_a_start_that_is_no_time_is_a_mistake_of_the_caller(headway: Headway, time: str):
    said = headway("run", "--eligible-at", time, "--", "true")
    assert said.code == 2
    assert "eligible" in said.err


@pytest.mark.parametrize(("status", "code"), [("done", 0), ("failed", 10), ("cancelled", 11)])
def test_waiting_ends_with_what_became_of_the_task(api: Api, headway: Headway, status: str, code: int):
    api.finish = {"status": status, "reason": {"code": "x", "message": "because"}}
    assert headway("run", "--wait", "--", "true").code == code
    assert headway("wait", "1000").code == code


def test_waiting_too_long_says_how_to_go_on(headway: Headway):
    said = headway("run", "--wait", "--timeout", "0", "--", "sleep", "9")
    assert (said.code, said.out) == (124, "1000\n")
    assert "task 1000 is not finished after 0 s. The task goes on; `headway wait 1000`" in said.err


@pytest.mark.parametrize(
    ("finished", "told"),
    [
        (["1000"], "1 of 2 tasks is not finished after 0 s. The task goes on; `headway wait 1001`"),
        ([], "2 of 2 tasks are not finished after 0 s. The tasks go on; `headway wait 1000 1001`"),
    ],
)
def test_what_is_not_finished_is_counted(api: Api, headway: Headway, finished: list[str], told: str):
    for _ in range(2):
        headway("run", "--", "true")
    for task_id in finished:
        api.tasks[task_id]["status"] = "done"
    said = headway("wait", "--timeout", "0", "1000", "1001")
    assert (said.code, told in said.err) == (124, True)


def test_following_prints_the_log_alone_on_stdout(api: Api, headway: Headway):
    api.finish = {"status": "done"}
    said = headway("run", "--follow", "--", "make")
    assert (said.code, said.out) == (0, "one\ntwo\n")
    assert "1000" in said.err


def test_interrupting_a_wait_detaches(api: Api, headway: Headway, monkeypatch: pytest.MonkeyPatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("headway.cli.waiting.said_on_stderr", interrupted)
    api.finish = {"status": "done"}
    said = headway("run", "--wait", "--", "make")
    assert said.code == 130
    assert "The task goes on; `headway wait 1000`" in said.err


def test_a_script_is_uploaded_and_named(api: Api, headway: Headway):
    Path("encode.sh").write_text("echo hi\n")
    assert headway("submit", "./encode.sh", "in.mp4", "-v").code == 0
    assert api.tasks["1000"]["said"]["script_path"] == "./encode.sh"
    assert api.tasks["1000"]["said"]["args"] == ["in.mp4", "-v"]
    assert list(api.scripts.values()) == [b"echo hi\n"]


def test_a_script_that_is_not_there_is_a_mistake_of_the_caller(headway: Headway):
    said = headway("submit", "./missing.sh")
    assert said.code == 2
    assert "cannot read missing.sh: No such file" in said.err


def test_a_manifest_finds_its_script_beside_itself(api: Api, headway: Headway):
    Path("jobs").mkdir()
    Path("jobs/x.sh").write_text("true")
    Path("jobs/task.yml").write_text("version: 1\nname: encode\nscript: ./x.sh\nargs: [1]\nexecution_cap: 30m\n")
    assert headway("submit", "-f", "jobs/task.yml", "--tag", "a=b").code == 0
    said = api.tasks["1000"]["said"]
    assert (said["name"], said["args"], said["tags"]) == ("encode", ["1"], {"a": "b"})
    assert said["script"].startswith("sha256:")


def test_an_option_replaces_one_key_of_the_retry_rule_of_a_manifest(api: Api, headway: Headway):
    manifest = b"command: [x]\nretry: {max_attempts: 5, never_on_exit: [64]}\n"
    assert headway("submit", "-f", "-", "--max-attempts", "2", stdin=manifest).code == 0
    assert api.tasks["1000"]["said"]["retry"] == {"max_attempts": 2, "never_on_exit": [64]}


def test_an_option_replaces_one_amount_of_a_manifest(api: Api, headway: Headway):
    manifest = b"command: [x]\nresources: {cpu: 4, memory: 1Gi}\n"
    assert headway("submit", "-f", "-", "--cpu", "2", stdin=manifest).code == 0
    assert api.tasks["1000"]["said"]["resources"] == {"cpu": 2, "memory": "1Gi"}


def test_a_wrong_manifest_uploads_nothing(api: Api, headway: Headway):
    said = headway("submit", "-f", "-", stdin=b"script: ./x.sh\ndelay_tolerence: 5s\n")
    assert said.code == 2
    assert "stdin:2: unknown key 'delay_tolerence'; did you mean delay_tolerance?" in said.err
    assert not api.requests


def test_json_lines_are_submitted_in_bulk_and_refusals_are_told(api: Api, headway: Headway):
    lines = b'{"command":["true"]}\n\n{"command":["true"],"tier":"nope"}\n{"command":["false"]}\n'
    said = headway("submit", "--jsonl", "-", stdin=lines)
    assert (said.code, said.out) == (2, "1000\n1001\n")
    assert "task 2: there is no tier 'nope'" in said.err
    assert "headway: 1 line was refused; the others are submitted" in said.err
    assert api.requests == ["POST /v1/tasks:batch"]


def test_ps_is_a_plain_table_for_pipes_and_json_for_programs(headway: Headway):
    headway("run", "--", "true")
    table = headway("ps").out.splitlines()
    assert table[0].split() == ["ID", "NAME", "STATUS", "REASON", "TIER", "AGE", "NODE"]
    assert table[1].split()[:4] == ["1000", "t", "waiting", "basic"]
    assert json.loads(headway("ps", "-o", "json").out)[0]["id"] == "1000"
    assert json.loads(headway("ps", "-o", "jsonl").out)["id"] == "1000"
    assert headway("ps", "-o", "name").out == "1000\n"
    assert "id: '1000'" in headway("ps", "-o", "yaml").out


def test_what_a_task_says_cannot_steer_the_terminal(api: Api, headway: Headway):
    api.finish = {"reason": {"code": "x", "message": "\x1b[2Jboo"}}
    headway("run", "--", "true")
    assert "\x1b" not in headway("ps").out + headway("show", "1000").out


def test_show_has_the_attempts_and_the_end_of_the_log(api: Api, headway: Headway):
    api.finish = {"status": "failed", "reason": {"code": "raised", "message": "no"}}
    headway("run", "--", "true")
    assert "ZeroDivisionError" in headway("show", "1000").out
    assert json.loads(headway("show", "1000", "-o", "json").out)["attempts"][0]["outcome"] == "failed"


def test_show_says_how_much_each_attempt_printed(headway: Headway, monkeypatch: pytest.MonkeyPatch):
    (attempt,) = records.attempts(b'{"items": [{"attempt": 1, "log_bytes": 14}]}')
    monkeypatch.setattr("headway.sdk.client.Client.attempts", lambda *_: [attempt])
    headway("run", "--", "true")
    assert json.loads(headway("show", "1000", "-o", "json").out)["attempts"][0]["log_bytes"] == 14


def test_logs_are_bytes_as_they_are(api: Api, headway: Headway):
    headway("run", "--", "true")
    assert headway("logs", "-f", "1000").out == "one\ntwo\n"


def test_cancel_goes_on_after_one_that_cannot_be(headway: Headway):
    headway("run", "--", "true")
    assert headway("cancel", "nope", "1000")[:2] == (4, "1000\n")
    said = headway("cancel", "1000")
    assert (said.code, said.out) == (5, "")


@pytest.mark.parametrize("words", [("pss",), ("ps", "--stauts", "x"), ("run",), ("submit",)])
def test_a_mistyped_command_line_is_exit_code_2(headway: Headway, words: tuple[str, ...]):
    assert headway(*words).code == 2


def test_a_mistyped_command_is_put_right(headway: Headway):
    assert "Did you mean" in headway("sumbit").err
    assert "--status" in headway("ps", "--stauts", "x").err


def test_a_wrong_key_is_exit_code_3_and_no_server_7(headway: Headway):
    assert headway("ps", "--key", "hw_wrong").code == 3
    said = headway("ps", "--url", "http://127.0.0.1:1")
    assert said.code == 7
    assert "headway dev" in said.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.Limited("x"), 6),
        (errors.Unavailable("x"), 7),
        (errors.DiscoveryError("x"), 7),
        (errors.Invalid("x"), 2),
        (errors.ApiError("x"), 1),
        (errors.TaskFailed("1", "c", "m"), 10),
        (TimeoutError(), 124),
    ],
)
def test_every_error_has_its_exit_code(error: Exception, code: int):
    assert trouble.exit_code(error) == code


def test_help_loads_no_more_than_it_shows():
    heavy = ["httpx2", "rich", "asyncio", "http.client", "msgspec", "yaml"]
    loaded = f"[m for m in {heavy} if m in sys.modules]"
    program = f"import sys; from headway import cli; cli.execute(['--help']); print({loaded})"
    shown = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert shown.endswith("[]\n")
    assert "dev " in shown


def test_a_closed_pipe_is_no_error(api: Api):
    words = f"{sys.executable} -m headway.cli ps -o jsonl | true; exit ${{PIPESTATUS[0]}}"
    environ = {**os.environ, "HEADWAY_URL": api.url, "HEADWAY_KEY": KEY}
    assert subprocess.run(["bash", "-c", words], env=environ, timeout=30, check=False).returncode == 0


def test_a_full_disk_behind_the_output_is_one_line_and_no_traceback(api: Api):
    environment = {**os.environ, "HEADWAY_URL": api.url, "HEADWAY_KEY": KEY}
    with Path("/dev/full").open("w") as full:
        said = subprocess.run(
            [sys.executable, "-m", "headway.cli", "ps"],
            env=environment, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert (said.returncode, said.stderr) == (1, "headway: the output cannot be written: No space left on device\n")
