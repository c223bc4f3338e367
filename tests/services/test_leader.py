"""The leader with real agents on real sockets: takeovers, restarts, and who may run what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from websockets.asyncio.client import ClientConnection, connect

from headway import wire
from headway.wire import Dispatch, Ended, Ending, Heartbeat, Hello, Key, Refused, Renewed, Returned, Welcome
from tests.services.serving import NODE_KEY, TRUE, Serving, a_server

SECONDS = 20


class RawAgent:
    """The agent's side of the protocol, one frame at a time."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._passed: list[wire.FromLeader] = []

    async def say(self, message: wire.FromAgent) -> None:
        await self._socket.send(wire.encode(message))

    async def hear(self, kind: type) -> wire.FromLeader:
        """The next message of a kind; others before it are heard by who asks for those."""
        for message in self._passed:
            if isinstance(message, kind):
                self._passed.remove(message)
                return message
        async with asyncio.timeout(SECONDS):
            while True:
                frame = await self._socket.recv()
                assert isinstance(frame, bytes)
                message = wire.decode_from_leader(frame)
                if isinstance(message, kind):
                    return message
                self._passed.append(message)

    async def assigned(self) -> list[wire.Assignment]:
        message = await self.hear(Dispatch)
        assert isinstance(message, Dispatch)
        return message.assignments

    async def dispatched(self) -> list[Key]:
        return [Key(one.tenant, one.task, one.attempt) for one in await self.assigned()]

    async def greet(
        self,
        name: str = "n1",
        *,
        incarnation: str = "a",
        home: str = "h",
        running: list[Key] | None = None,
        frozen: list[Key] | None = None,
    ) -> wire.FromLeader:
        await self.say(
            Hello(
                wire.PROTOCOL, name, incarnation, home, {"cpu": 1000, "memory": 2**30}, {}, [], ["command"],
                {"command": 0}, running or [], ("trusted", "sandboxed"), frozen=frozen or [],
            )
        )  # fmt: skip
        async with asyncio.timeout(SECONDS):
            frame = await self._socket.recv()
        assert isinstance(frame, bytes)
        return wire.decode_from_leader(frame)


@asynccontextmanager
async def an_agent(serving: Serving) -> AsyncIterator[RawAgent]:
    url = serving.url.replace("http", "ws") + "/v1/agent/session"
    async with connect(url, additional_headers={"Authorization": f"Bearer {NODE_KEY}"}) as socket:
        yield RawAgent(socket)


async def a_task(serving: Serving) -> str:
    return (await serving.http.post("/v1/tasks", json=TRUE)).json()["id"]


async def the_task(serving: Serving, task: str) -> dict[str, object]:
    return (await serving.http.get(f"/v1/tasks/{task}")).json()


async def test_a_task_is_dispatched_ended_and_acknowledged(serving: Serving):
    async with an_agent(serving) as agent:
        assert isinstance(await agent.greet(), Welcome)
        task = await a_task(serving)
        (key,) = await agent.dispatched()
        await agent.say(Ended(1, [Ending(*key, 0, result="42")]))
        await agent.hear(wire.Ack)
        over = await the_task(serving, task)
        assert (over["status"], over["result"], over["node"]) == ("done", 42, "n1")


async def test_a_reconnected_agent_keeps_what_it_runs(serving: Serving):
    task = await a_task(serving)
    async with an_agent(serving) as agent:
        await agent.greet()
        keys = await agent.dispatched()
    async with an_agent(serving) as agent:
        welcome = await agent.greet(running=keys)
        assert isinstance(welcome, Welcome)
        assert welcome.disown == []
        await agent.say(Ended(1, [Ending(*keys[0], 0)]))
        await agent.hear(wire.Ack)
    assert (await the_task(serving, task))["attempt"] == 1


async def test_what_never_reached_the_same_agent_costs_no_attempt(serving: Serving):
    await a_task(serving)
    async with an_agent(serving) as agent:
        await agent.greet()
        first = await agent.dispatched()
    async with an_agent(serving) as agent:
        await agent.greet(running=[])
        assert await agent.dispatched() == first


async def test_a_new_start_in_the_same_home_gives_lost_tasks_another_attempt(serving: Serving):
    await a_task(serving)
    async with an_agent(serving) as agent:
        await agent.greet()
        (first,) = await agent.dispatched()
    async with an_agent(serving) as agent:
        await agent.greet(incarnation="b")
        assert await agent.dispatched() == [first._replace(attempt=2)]


async def test_an_agent_of_the_same_name_elsewhere_waits_until_the_first_has_stopped(serving: Serving):
    """The first may be cut off and still run its task: nobody may start it again before its lease is over."""
    task = await a_task(serving)
    async with an_agent(serving) as agent:
        await agent.greet()
        await agent.dispatched()
    async with an_agent(serving) as twin:
        answer = await twin.greet(incarnation="b", home="elsewhere")
        assert isinstance(answer, Refused)
        assert answer.code == "name_taken"
    assert (await the_task(serving, task))["status"] == "running"


async def test_two_agents_of_one_name_cannot_both_be_connected(serving: Serving):
    async with an_agent(serving) as agent, an_agent(serving) as twin:
        await agent.greet()
        answer = await twin.greet(incarnation="b")
        assert isinstance(answer, Refused)
        assert answer.code == "name_taken"


async def test_an_agent_is_told_to_forget_what_is_not_its_own(serving: Serving):
    stranger = Key(1, 12345, 1)
    async with an_agent(serving) as agent:
        welcome = await agent.greet(running=[stranger])
        assert isinstance(welcome, Welcome)
        assert welcome.disown == [stranger]
        await agent.say(Ended(1, [Ending(*stranger, 0)]))
        await agent.hear(wire.Ack)


async def test_what_an_agent_hands_back_is_dispatched_again_as_the_same_attempt(serving: Serving):
    await a_task(serving)
    async with an_agent(serving) as agent:
        await agent.greet()
        keys = await agent.dispatched()
        await agent.say(Returned(keys))
        assert await agent.dispatched() == keys


@pytest.mark.parametrize(
    "lie",
    [
        {"outcome": 99}, {"outcome": 1, "message": "a\0b"}, {"outcome": 1, "code": "\0"}, {"outcome": 0, "result": "{"},
        {"outcome": 0, "result": '"\0"'}, {"outcome": 1, "exit_code": 2**40}, {"outcome": 0, "ran_ms": -1},
        {"outcome": 0, "result": '"\\ud800"'}, {"outcome": 0, "log_bytes": 2**62},
    ],
)  # fmt: skip
async def test_an_ending_that_makes_no_sense_ends_one_task_and_nothing_else(serving: Serving, lie: dict[str, object]):
    async with an_agent(serving) as agent:
        await agent.greet()
        task = await a_task(serving)
        (key,) = await agent.dispatched()
        await agent.say(Ended(1, [Ending(*key, **lie)]))  # pyright: ignore[reportArgumentType]
        await agent.hear(wire.Ack)
        assert (await the_task(serving, task))["status"] in ("failed", "done")
        await a_task(serving)
        (key,) = await agent.dispatched()
        await agent.say(Ended(2, [Ending(*key, 0)]))
        await agent.hear(wire.Ack)


async def test_an_agent_that_is_gone_before_its_welcome_leaves_no_ghost(serving: Serving):
    for _ in range(3):
        url = serving.url.replace("http", "ws") + "/v1/agent/session"
        async with connect(url, additional_headers={"Authorization": f"Bearer {NODE_KEY}"}) as socket:
            hello = Hello(wire.PROTOCOL, "ghost", "a", "h", {"cpu": 1000}, {}, [], ["command"], {}, [])
            await socket.send(wire.encode(hello))
            socket.transport.abort()
    async with asyncio.timeout(SECONDS):
        while True:
            async with an_agent(serving) as agent:
                if isinstance(await agent.greet("ghost", incarnation="b"), Welcome):
                    return


async def test_of_agents_of_one_name_that_come_together_one_is_welcomed(serving: Serving):
    async with an_agent(serving) as one, an_agent(serving) as two, an_agent(serving) as three:
        answers = await asyncio.gather(*(a.greet(incarnation=i) for a, i in ((one, "a"), (two, "b"), (three, "c"))))
        assert sum(isinstance(answer, Welcome) for answer in answers) == 1


async def test_a_node_cannot_write_into_the_log_of_another(serving: Serving):
    task = await a_task(serving)
    async with an_agent(serving) as owner, an_agent(serving) as thief:
        await owner.greet()
        (key,) = await owner.dispatched()
        await thief.greet("thief")
        await thief.say(wire.Logs([wire.LogChunk(*key, 0, b"forged")]))
        await thief.say(Heartbeat(1, {}))
        await thief.hear(Renewed)
        assert (await serving.http.get(f"/v1/tasks/{task}/logs", params={"attempt": 1})).content == b""


async def test_a_capacity_below_nothing_is_refused(serving: Serving):
    async with an_agent(serving) as agent:
        await agent.say(Hello(wire.PROTOCOL, "n1", "a", "h", {"cpu": -5}, {}, [], ["command"], {}, []))
        answer = await agent.hear(Refused)
        assert isinstance(answer, Refused)
        assert answer.code == "bad_hello"


async def test_a_lease_is_renewed_in_the_database_before_it_is_said(serving: Serving):
    async with an_agent(serving) as agent:
        await agent.greet()
        await agent.say(Heartbeat(7, {}))
        renewed = await agent.hear(Renewed)
        assert isinstance(renewed, Renewed)
        assert renewed.sequence == 7


async def test_a_wrong_protocol_and_noise_are_refused(serving: Serving):
    async with an_agent(serving) as agent:
        await agent.say(Hello(99, "n1", "a", "h", {}, {}, [], [], {}, []))
        answer = await agent.hear(Refused)
        assert isinstance(answer, Refused)
        assert answer.code == "wrong_protocol"
    async with an_agent(serving) as agent:
        await agent._socket.send(b"\xff\xff noise")  # pyright: ignore[reportPrivateUsage]
        answer = await agent.hear(Refused)
        assert isinstance(answer, Refused)
        assert answer.code == "no_hello"


ALONE = {**TRUE, "resources": {"cpu": 0.1}, "concurrency": [{"key": "customer-7", "limit": 1}]}
BESIDE = {**TRUE, "resources": {"cpu": 0.1}}


async def submitted(serving: Serving, body: dict[str, object]) -> int:
    return int((await serving.http.post("/v1/tasks", json=body)).json()["id"])


async def test_a_key_is_held_as_long_as_its_task_may_run_on_a_node_that_is_away(serving: Serving):
    async with an_agent(serving) as second:
        async with an_agent(serving) as first:
            await first.greet("n1")
            await submitted(serving, ALONE)
            keys = await first.dispatched()
        async with an_agent(serving) as first:  # the first session is surely over when this one is refused or welcome
            await first.greet("n1", running=keys)
        await second.greet("n2")
        waits, free = await submitted(serving, ALONE), await submitted(serving, BESIDE)
        assert [key.task for key in await second.dispatched()] == [free]
        why = (await serving.http.get(f"/v1/tasks/{waits}/explain")).json()
        assert (why["code"], why["blockers"][0]["holders"]) == ("concurrency", [str(keys[0].task)])
        async with an_agent(serving) as first:
            await first.greet("n1", running=keys)
            await first.say(Ended(1, [Ending(*keys[0], 0)]))
            await first.hear(wire.Ack)
            told = [asyncio.create_task(agent.dispatched()) for agent in (first, second)]
            done, pending = await asyncio.wait(told, return_when=asyncio.FIRST_COMPLETED)
            assert [key.task for one in done for key in one.result()] == [waits]
            for one in pending:
                one.cancel()


async def test_a_new_leader_knows_who_holds_a_key_before_any_node_is_back(database_url: str, tmp_path: Path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    async with a_server(database_url, tmp_path / "one") as leading, an_agent(leading) as agent:
        await agent.greet("n1")
        await submitted(leading, ALONE)
        await agent.dispatched()
    async with a_server(database_url, tmp_path / "two") as next_one, an_agent(next_one) as other:
        assert isinstance(await other.greet("n2"), Welcome)
        waits, free = await submitted(next_one, ALONE), await submitted(next_one, BESIDE)
        assert [key.task for key in await other.dispatched()] == [free]
        assert (await the_task(next_one, str(waits)))["status"] == "waiting"


async def test_a_standby_takes_over_and_the_agent_goes_on(database_url: str, tmp_path: Path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    async with a_server(database_url, tmp_path / "two") as standby_first_leads:
        task = await a_task(standby_first_leads)
        async with an_agent(standby_first_leads) as agent:
            await agent.greet()
            keys = await agent.dispatched()
            async with a_server(database_url, tmp_path / "one") as standby:
                waiting = asyncio.create_task(a_session(standby, keys))
                await agent._socket.close()  # pyright: ignore[reportPrivateUsage]
                standby_first_leads.stop()
                async with asyncio.timeout(30):
                    await waiting
                assert (await the_task(standby, task))["status"] == "done"


async def a_session(serving: Serving, keys: list[Key]) -> None:
    """Tries until the server leads; then ends what it runs."""
    while True:
        async with an_agent(serving) as agent:
            if isinstance(await agent.greet(running=keys), Welcome):
                await agent.say(Ended(1, [Ending(*key, 0) for key in keys]))
                await agent.hear(wire.Ack)
                return
