"""The SDK against the other side of its protocol."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import headway
from headway.sdk import conversations
from headway.sdk.conversations import Lost, Pause, Request, Response
from headway.sdk.errors import Conflict, Limited, Unauthorized, Unavailable
from headway.sdk.handle import BatchRefused
from tests.services.api_double import KEY, Api, serving


@pytest.fixture(scope="module")
def served() -> Iterator[Api]:
    with serving(Api()) as served:
        yield served


@pytest.fixture
def api(served: Api) -> Api:
    served.forget()
    return served


@pytest.fixture
def app(api: Api) -> Iterator[headway.App]:
    app = headway.App("shop", url=api.url, key=KEY)
    yield app
    app.client.close()


def charge(order_id: int, note: object = "") -> str:
    """Charges."""
    return f"charged {order_id}{note}"


def told(order_id: int, *, ctx: headway.Context) -> tuple[int, str, int]:
    return order_id, ctx.task_id, ctx.attempt


def test_a_plain_call_runs_the_function_here():
    assert headway.App("shop").task(charge)(42) == "charged 42"


def test_a_plain_call_gets_a_context_of_its_own():
    task = headway.App("shop").task(told)
    assert task.wants_context
    assert task(42) == (42, "0", 1)  # pyright: ignore[reportCallIssue]


def test_a_task_is_found_under_its_module_and_name():
    app = headway.App("shop")
    task = app.task(tier="premium")(charge)
    assert app.tasks == {f"{__name__}:charge": task}
    assert (task.fn, task.__doc__) == (charge, "Charges.")


def test_a_program_run_as_a_script_names_its_tasks_by_its_file(tmp_path: Path):
    program = tmp_path / "shop.py"
    program.write_text("import headway\napp = headway.App('x')\n@app.task\ndef f(): ...\nprint(*app.tasks)\n")
    assert subprocess.check_output([sys.executable, program], text=True) == "shop:f\n"
    named = [sys.executable, "-m", "shop"]
    assert subprocess.check_output(named, text=True, cwd=tmp_path) == "shop:f\n"


def test_submit_sends_what_the_decorator_and_the_options_say(api: Api, app: headway.App):
    task = app.task(tier="basic", delay_tolerance="5s", retry=headway.Retry(max_attempts=5))(charge)
    handle = task.options(tier="premium", tags={"a": "b"}).submit(42, note="!")
    assert api.tasks[handle.id]["said"] == {
        "function": f"{__name__}:charge",
        "args": [42],
        "kwargs": {"note": "!"},
        "tier": "premium",
        "delay_tolerance": "5s",
        "retry": {"max_attempts": 5},
        "tags": {"a": "b"},
    }
    assert handle.status() == "waiting"


def test_a_result_comes_back(api: Api, app: headway.App):
    api.finish = {"status": "done", "result": "charged 42"}
    assert app.task(charge).submit(42).result(timeout=5) == "charged 42"


def test_a_failure_says_why_and_shows_the_end_of_the_log(api: Api, app: headway.App):
    api.finish = {"status": "failed", "reason": {"code": "raised", "message": "division by zero"}}
    handle = app.task(charge).submit(42)
    with pytest.raises(headway.TaskFailed, match="division by zero") as failed:
        handle.result(timeout=5)
    assert (failed.value.code, failed.value.tail) == ("raised", "ZeroDivisionError")


def test_a_cancelled_task_has_no_result(api: Api, app: headway.App):
    handle = app.task(charge).submit(42)
    handle.cancel()
    with pytest.raises(headway.TaskCancelled):
        handle.result(timeout=5)
    with pytest.raises(Conflict) as refused:
        handle.cancel()
    assert refused.value.code == "already_finished"


def test_waiting_too_long_is_a_timeout(app: headway.App):
    with pytest.raises(TimeoutError, match="still waiting"):
        app.task(charge).submit(42).result(timeout=0)


def test_a_map_travels_in_batches_and_comes_back_in_order(api: Api, app: headway.App):
    api.finish = {"status": "done", "result": 7}
    handles = app.task(charge).map(range(10_001))
    assert api.requests == ["POST /v1/tasks:batch"] * 2
    assert len(handles) == 10_001
    assert [api.tasks[handle.id]["said"]["args"] for handle in handles[:2]] == [[0], [1]]
    assert handles.results(timeout=30) == [7] * 10_001


def test_a_map_says_which_calls_were_refused_and_keeps_the_others(app: headway.App):
    with pytest.raises(BatchRefused, match="item 0: there is no tier 'nope'") as refused:
        app.task(tier="nope")(charge).starmap([(1,), (2,)])
    assert len(refused.value.handles) == 0


@pytest.mark.parametrize("value", [object(), datetime.now(UTC), float("nan"), b"x", {1, 2}, "\ud800"])
def test_an_argument_that_is_no_json_is_named(app: headway.App, value: object):
    with pytest.raises(headway.SubmissionError, match="argument 'note' cannot be sent"):
        app.task(charge).submit(42, value)


def test_a_call_that_does_not_fit_is_refused_before_it_is_sent(api: Api, app: headway.App):
    with pytest.raises(headway.SubmissionError, match="missing a required argument: 'order_id'"):
        app.task(charge).submit()  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        app.task(told).submit(1, 2, ctx=None)  # pyright: ignore[reportCallIssue, reportArgumentType]
    assert not api.requests


def test_a_local_function_cannot_be_submitted(app: headway.App):
    with pytest.raises(headway.SubmissionError, match="module level"):
        app.task(lambda: None).submit()


async def test_the_async_face_asks_the_same(api: Api):
    app = headway.App("shop", url=api.url, key=KEY)
    api.finish = {"status": "done", "result": "charged 42"}
    handle = await app.task(charge).asubmit(42)
    assert await handle.aresult(timeout=5) == "charged 42"
    client = await app.async_client()
    assert [piece async for piece in client.logs(handle.id)] == [b"one\ntwo\n"]
    assert (await client.tasks()).items[0].id == handle.id
    await client.aclose()


def test_logs_come_in_pieces(app: headway.App):
    assert b"".join(app.task(charge).submit(42).logs(follow=True)) == b"one\ntwo\n"


def test_a_wrong_key_and_an_absent_server_say_what_to_do(api: Api):
    with headway.Client(api.url, "hw_wrong") as client, pytest.raises(Unauthorized, match="HEADWAY_KEY"):
        client.tasks()
    with headway.Client("http://127.0.0.1:1", KEY) as client, pytest.raises(Unavailable, match="headway dev"):
        client.tasks()


def test_a_limit_says_when_to_come_back(api: Api, app: headway.App):
    api.refuse_next = (429, {"code": "rate_limited", "detail": "too fast"})
    with pytest.raises(Limited, match="too fast"):
        app.task(charge).submit(1)


def test_a_handle_shows_itself_in_a_notebook(app: headway.App):
    assert "<b>waiting</b>" in app.task(charge).submit(42)._repr_html_()


def test_a_connection_the_server_closed_meanwhile_is_not_used_again():
    answer = b'HTTP/1.1 201 Created\r\ncontent-length: 12\r\n\r\n{"id": "17"}'
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def answer_one_per_connection() -> None:
            for _ in range(2):
                connection, _ = listening.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(answer)

        server = threading.Thread(target=answer_one_per_connection)
        server.start()
        with headway.Client(f"http://127.0.0.1:{port}", KEY) as client:
            ids = [client.submit(headway.Submission(command=["true"])).id]
            readable = select.poll()
            readable.register(client._connections._idle[0].sock, select.POLLIN)  # pyright: ignore[reportPrivateUsage]
            assert readable.poll(5_000), "the server's end has arrived"
            ids.append(client.submit(headway.Submission(command=["true"])).id)
        server.join(5)
    assert ids == ["17", "17"]


def test_a_question_outlives_a_broken_connection():
    talk = conversations.ask(Request("GET", "/v1/me", repeatable=True), now=lambda: 0.0)
    next(talk)
    assert isinstance(talk.send(Lost("reset", met=True)), Pause)
    assert isinstance(talk.send(None), Request)
    assert isinstance(talk.send(Lost("refused", met=False)), Pause), "its server restarts"
    talk.send(None)
    with pytest.raises(StopIteration) as end:
        talk.send(Response(200, b"{}"))
    assert end.value.value == b"{}"


def test_a_submission_is_never_sent_twice():
    talk = conversations.submit(headway.Submission(command=["true"]))
    next(talk)
    with pytest.raises(Unavailable, match="may have arrived"):
        talk.send(Lost("reset", met=True))


def test_a_question_gives_up_on_a_server_that_stays_away():
    times = iter([0.0, 0.0, 31.0])
    talk = conversations.ask(Request("GET", "/v1/me", repeatable=True), now=lambda: next(times))
    next(talk)
    talk.send(Lost("reset", met=True))
    talk.send(None)
    with pytest.raises(Unavailable):
        talk.send(Lost("refused", met=False))


def test_importing_headway_for_a_worker_is_light():
    heavy = ["httpx2", "click", "rich", "asyncio", "http.client", "msgspec", "inspect"]
    program = f"import sys, headway; headway.App; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"
