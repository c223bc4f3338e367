"""Bundles and artifacts through everything: command line, server, agent and back."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.sdk.client import AsyncClient, Client
from tests.end_to_end.dev import Dev, a_dev


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    with a_dev(tmp_path_factory.mktemp("files")) as dev:
        yield dev


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "folder"
    (root / "src").mkdir(parents=True)
    (root / "main.sh").write_text('#!/bin/sh\ncat data.txt; cat "$1"; pwd | sed s,.*/,,\n')
    (root / "main.sh").chmod(0o755)
    (root / "src" / "main.sh").write_text("#!/bin/sh\npwd | sed s,.*/,,\n")
    (root / "src" / "main.sh").chmod(0o755)
    (root / "data.txt").write_text("data\n")
    (root / "link").symlink_to("data.txt")
    (root / "big").write_bytes(os.urandom(300_000))
    (root / "headway-output.json").write_text('"brought along"')
    return root


def headway(dev: Dev, *words: str, code: int = 0) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "headway.cli", *words], env=dev.environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == code, ran.stderr
    return ran.stdout


def client(dev: Dev) -> Client:
    return Client(dev.environment["HEADWAY_URL"], dev.environment["HEADWAY_KEY"])


def sent(dev: Dev, folder: Path) -> str:
    with client(dev) as said:
        return said.bundle(folder)


def left(dev: Dev, line: str, **said: object) -> dict[str, object]:
    """A task that runs a line of shell, when it is over."""
    return dev.run(command=["/bin/sh", "-c", line], **said)


def files(dev: Dev, task: dict[str, object]) -> dict[str, int]:
    answer = dev.http.get(f"/v1/tasks/{task['id']}/artifacts").json()
    return {one["path"]: one["size"] for one in answer["items"]}


def test_a_folder_is_sent_along_and_a_task_starts_in_it(dev: Dev, folder: Path):
    assert headway(dev, "run", "--follow", "--bundle", str(folder), "--", "./main.sh", "link").startswith(
        "data\ndata\n"
    )
    for profile in ("sandboxed", "trusted"):
        words = ("--profile", profile, "--bundle", str(folder), "--workdir", "src", "--", "./main.sh")
        assert headway(dev, "run", "--follow", *words) == "src\n"
        words = ("--profile", profile, "--workdir", "a/b", "--", "sh", "-c", "pwd | sed s,.*/,,; touch x")
        assert headway(dev, "run", "--follow", *words) == "b\n"
    task = dev.run(command=["cat", "src/main.sh"], bundle=sent(dev, folder))
    assert (task["status"], task["result"]) == ("done", None)


def test_each_attempt_has_the_folder_as_it_was_sent(dev: Dev, folder: Path):
    bundle = sent(dev, folder)
    line = 'test "$(cat data.txt)" = data && echo changed > data.txt && exit $((HEADWAY_ATTEMPT < 2))'
    task = left(dev, line, bundle=bundle, retry={"max_attempts": 2, "initial": "10ms"})
    assert (task["status"], task["attempt"]) == ("done", 2)


def test_a_script_runs_beside_its_bundle_and_a_manifest_says_so(dev: Dev, folder: Path, tmp_path: Path):
    (tmp_path / "job.sh").write_text('cat "$1"\n')
    (tmp_path / "task.yml").write_text("script: ./job.sh\nargs: [data.txt]\nbundle: folder\n")
    assert headway(dev, "submit", "-f", str(tmp_path / "task.yml"), "--follow") == "data\n"
    assert headway(dev, "submit", "--bundle", str(folder), "--follow", str(tmp_path / "job.sh"), "link") == "data\n"


def test_what_is_wrong_with_a_bundle_is_said(dev: Dev, folder: Path):
    absent = dev.http.post("/v1/tasks", json={"command": ["x"], "bundle": "sha256:" + "0" * 64})
    assert (absent.status_code, absent.json()["errors"][0]["path"]) == (422, "bundle")
    wrong = dev.http.post("/v1/tasks", json={"command": ["x"], "workdir": "../x"})
    assert (wrong.status_code, wrong.json()["errors"][0]["path"]) == (422, "workdir")
    digest = dev.http.post("/v1/scripts", content=b"this is no archive").json()["digest"]
    task = dev.run(command=["true"], bundle=digest)
    assert (task["status"], task["reason"]["code"]) == ("failed", "bundle_invalid")  # type: ignore[index]
    task = dev.run(command=["true"], bundle=sent(dev, folder), workdir="nowhere")
    assert (task["status"], task["reason"]["code"]) == ("failed", "workdir_missing")  # type: ignore[index]


def test_an_archive_that_reaches_out_is_not_unpacked(dev: Dev, tmp_path: Path):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo("../../escaped")
        info.size = 1
        archive.addfile(info, io.BytesIO(b"x"))
    digest = dev.http.post("/v1/scripts", content=out.getvalue()).json()["digest"]
    task = dev.run(command=["true"], bundle=digest)
    assert "not a path within the folder" in task["reason"]["message"]  # type: ignore[index]


def test_what_a_task_leaves_is_listed_and_downloaded(dev: Dev, tmp_path: Path):
    line = (
        'cd "$HEADWAY_ARTIFACTS" && mkdir "a b" && echo one > "a b/ö.txt" && head -c 300000 /dev/zero > z && : > empty'
    )
    task = left(dev, line)
    assert files(dev, task) == {"a b/ö.txt": 4, "empty": 0, "z": 300_000}
    with client(dev) as said:
        assert [one.path for one in said.artifacts(str(task["id"]))] == ["a b/ö.txt", "empty", "z"]
        assert b"".join(said.artifact(str(task["id"]), "a b/ö.txt")) == b"one\n"
    answer = dev.http.get(f"/v1/tasks/{task['id']}/artifacts/z", headers={"Range": "bytes=10-19"})
    assert (answer.status_code, answer.content) == (206, bytes(10))
    assert headway(dev, "artifacts", str(task["id"]), "-o", "name").splitlines() == ["a b/ö.txt", "empty", "z"]
    headway(dev, "download", str(task["id"]), "--to", str(tmp_path / "all"))
    assert (tmp_path / "all" / "z").read_bytes() == bytes(300_000)
    headway(dev, "download", str(task["id"]), "a b/ö.txt", "--to", str(tmp_path / "one"))
    assert (tmp_path / "one" / "a b" / "ö.txt").read_text() == "one\n"
    assert headway(dev, "download", str(task["id"]), "a b/ö.txt", "--to", "-") == "one\n"
    headway(dev, "download", str(task["id"]), "nothing", code=4)


async def test_an_async_client_bundles_and_downloads(dev: Dev, folder: Path, tmp_path: Path):
    async with AsyncClient(dev.environment["HEADWAY_URL"], dev.environment["HEADWAY_KEY"]) as said:
        task = left(dev, 'cp data.txt "$HEADWAY_ARTIFACTS"', bundle=await said.bundle(folder))
        await said.download(str(task["id"]), tmp_path / "all")
        await said.download(str(task["id"]), tmp_path / "one", "data.txt")
    assert (tmp_path / "all" / "data.txt").read_text() == (tmp_path / "one" / "data.txt").read_text() == "data\n"


def test_the_artifacts_of_each_attempt_are_kept_also_of_one_that_failed(dev: Dev):
    line = 'echo $HEADWAY_ATTEMPT > "$HEADWAY_ARTIFACTS/n"; exit 3'
    task = left(dev, line, retry={"max_attempts": 2, "initial": "10ms"})
    assert (task["status"], task["exit_code"]) == ("failed", 3)
    for attempt in (1, 2):
        answer = dev.http.get(f"/v1/tasks/{task['id']}/artifacts/n", params={"attempt": attempt})
        assert answer.text == f"{attempt}\n"
    capped = left(dev, 'echo x > "$HEADWAY_ARTIFACTS/x"; sleep 60', execution_cap="0.3s", cap_grace="0.1s")
    assert (capped["reason"]["code"], files(dev, capped)) == ("cap_exceeded", {"x": 2})  # type: ignore[index]


def test_links_pipes_and_devices_among_artifacts_take_nothing_from_outside(dev: Dev, tmp_path: Path):
    (tmp_path / "secret").write_text("secret")
    evil = f"ln -s {tmp_path}/secret link; ln -s {tmp_path} folder; mkfifo pipe; mknod null c 1 3; echo good > good"
    for profile in ("sandboxed", "trusted"):
        task = left(dev, f'cd "$HEADWAY_ARTIFACTS" && {{ {evil}; }}; true', profile=profile)
        assert task["status"] == "done"
        answer = dev.http.get(f"/v1/tasks/{task['id']}/artifacts").json()
        assert [one["path"] for one in answer["items"]] == ["good"]
        assert {one["path"] for one in answer["left_out"]} >= {"link", "folder", "pipe"}
        archive = dev.http.get(f"/v1/tasks/{task['id']}/artifacts:archive").content
        assert b"secret" not in archive
    gone = left(dev, f'rm -r "$HEADWAY_ARTIFACTS" && ln -s {tmp_path} "$HEADWAY_ARTIFACTS"', profile="trusted")
    assert (gone["status"], files(dev, gone)) == ("done", {})


def test_artifacts_that_the_plan_has_no_room_for_fail_what_left_them(dev: Dev):
    assert dev.http.patch("/v1/plans/default", json={"quota": {"storage": "1Mi"}}).status_code == 200
    try:
        task = left(dev, 'head -c 3000000 /dev/zero > "$HEADWAY_ARTIFACTS/big"')
    finally:
        dev.http.patch("/v1/plans/default", json={"quota": {}})
    assert task["reason"]["code"] == "artifacts_not_kept"  # type: ignore[index]
    assert "the plan allows" in task["reason"]["message"]  # type: ignore[index]


def test_another_tenant_finds_no_artifacts(dev: Dev):
    task = left(dev, 'echo mine > "$HEADWAY_ARTIFACTS/mine"')
    dev.http.post("/v1/tenants", json={"name": "other"})
    key = dev.http.post("/v1/keys", json={"tenant": "other", "role": "client"}).json()["key"]
    for where in ("artifacts", "artifacts/mine", "artifacts:archive"):
        answer = dev.http.get(f"/v1/tasks/{task['id']}/{where}", headers={"Authorization": f"Bearer {key}"})
        assert answer.status_code == 404
