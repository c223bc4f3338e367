"""The attacks, by name: those that judge themselves from inside, and those that only the node can judge.

Of each it is known what it tries; `why_broken` tries it and answers what gave way, or nothing when the walls held.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from headway.agent.sandbox.escapes import program
from headway.agent.sandbox.escapes.ground import PYTHON, Ground
from headway.agent.sandbox.escapes.luggage import LUGGAGE
from headway.agent.sandbox.escapes.spin import slowed
from headway.core.profiles import CONTAINER, HOSTILE, SANDBOXED
from headway.files import removing
from headway.wire import Ending, Outcome

MIB = 1024 * 1024
AT_ONCE = 8
PATIENCE_SECONDS = 30.0
SLOWED_MAX = 2.0
LOOKS, LOOK_SECONDS = 100, 0.02
_BOMB_PIDS = 64
_BOMB_BYTES = 48 * MIB
_MORE = "while sleep 0.02; head -c 2000000 /dev/zero"
"""A hundred megabytes a second: more would keep the disk from everybody else before it is ended."""
_NEIGHBOUR_SECONDS = 15.0
"""How long a program may take to start beside a bomb; alone it takes some milliseconds, on a busy machine more."""

ELSEWHERE: dict[str, frozenset[str]] = {
    CONTAINER: frozenset({
        # The root is the image's, and its tasks may change it: what they see there and write to is a copy of their own.
        # Its setuid bits say nothing to who can have no new privileges.
        "homes", "write the system", "setuid programs",
    }),
    HOSTILE: frozenset({
        # There they reach gVisor's own kernel, which has its own answer, and not the node's.
        "environment of the first process", "homes", "kill everybody", "trace", "setuid programs", "capabilities",
        "user namespace", "other namespaces", "enter a namespace", "files by handle", "unsized places", "netlink",
        "type into a terminal", "io uring", "perf", "calls of another machine", "predictable addresses",
        # Its programs take some twenty threads and its time is its own: judged by what only bubblewrap promises.
        "fork bomb", "cpu spin", "a pipe for a result", "a bundle with setuid programs",
    }),
}  # fmt: skip
"""By profile, what is no attack there, because it does not get as far as the node."""

Try = Callable[[Ground], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack: what it tries, and how."""

    name: str
    what: str
    why_broken: Try
    needs_groups: bool = False
    """Whether control groups are what holds against it."""
    is_timed: bool = False
    """Whether it is judged by how long something takes."""


async def try_all(ground: Ground, found: Callable[[Attack, str], None]) -> None:
    """Tries every attack, some at a time; `found` is told of each what gave way. A bomb is not let off where nothing
    would stop it: that it cannot be withstood is known without."""
    places = asyncio.Semaphore(AT_ONCE)
    missing = [f"{name} ({why})" for name, why in ground.groups.degraded.items() if name in ("cpu", "memory", "pids")]

    async def one(attack: Attack) -> None:
        if attack.needs_groups and missing:
            found(attack, f"not tried: there is no limit of {', '.join(missing)}")
            return
        async with places:
            found(attack, await attack.why_broken(ground))

    async with asyncio.TaskGroup() as group:
        for attack in attacks(ground.profile):
            if not attack.is_timed:
                group.create_task(one(attack))
    for attack in attacks(ground.profile):
        if attack.is_timed:  # by itself
            await one(attack)


def attacks(profile: str = SANDBOXED) -> Iterator[Attack]:
    """All that a profile is to withstand."""
    return (one for one in _all() if one.name not in ELSEWHERE.get(profile, ()))


def _all() -> Iterator[Attack]:
    for one in program.ATTACKS:
        yield Attack(_spoken(one.__name__), "", _from_inside(one.__name__))
    for attempt in (*_JUDGED_OUTSIDE, *LUGGAGE):
        what = (attempt.__doc__ or "").splitlines()[0]
        yield Attack(_spoken(attempt.__name__), what, attempt, attempt in _HELD_BY_GROUPS, attempt is cpu_spin)


def _spoken(name: str) -> str:
    return name.replace("_", " ")


def _from_inside(name: str) -> Try:
    async def why_broken(ground: Ground) -> str:
        ending = await ground.attack(name)
        return "" if ending.outcome == Outcome.DONE else _said(ground, ending)

    return why_broken


def _said(ground: Ground, ending: Ending) -> str:
    text = ground.logs.get(ending.task, b"").decode(errors="replace").strip().splitlines()
    return (text[-1].removeprefix("broken: ") if text else "") or ending.message or "it ended without a word"


async def fork_bomb(ground: Ground) -> str:
    """Forks without end: the neighbours start their programs all the same, and it is gone at its end."""
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n"
    number = ground.start([PYTHON, "-I", "-S", "-c", bomb], cap_ms=1000, pids=_BOMB_PIDS)
    began = time.monotonic()
    neighbour = await ground.run(["/bin/true"])
    took = time.monotonic() - began
    ending = await ground.ending(number)
    if neighbour.outcome != Outcome.DONE or took > _NEIGHBOUR_SECONDS:
        return f"beside it, a neighbour took {took:.1f} s and ended with {neighbour.code or 'success'}"
    return "" if ending.outcome == Outcome.CAPPED else f"it ended with {ending.code}: {ending.message}"


async def memory_bomb(ground: Ground) -> str:
    """Takes memory until it dies: it alone dies, and is told why."""
    ending = await ground.run([PYTHON, "-c", "x = []\nwhile True: x.append(b'x' * 1048576)"], memory=64 * MIB)
    return "" if ending.code == "oom" else f"it ended with {ending.code or 'success'}: {ending.message}"


async def memory_bomb_in_files(ground: Ground) -> str:
    """Fills /tmp and /dev/shm, which are memory: there is no room, or it dies of it."""
    line = "cat /dev/zero > /tmp/x; cat /dev/zero > /dev/shm/x; exit 7"
    ending = await ground.run(["/bin/sh", "-c", line], memory=96 * MIB)
    return "" if ending.code == "oom" or ending.exit_code == 7 else f"it ended with {ending.code or 'success'}"


async def memory_bomb_in_the_page_cache(ground: Ground) -> str:
    """Reads and writes more of a file than it has memory: what is kept of it counts as its own."""
    line = "head -c 200000000 /dev/zero > x; cat x > /dev/null; cat x > /dev/null"
    ending = await ground.run(["/bin/sh", "-c", line], memory=64 * MIB)
    peak = (ending.usage or {}).get("memory_peak", 0.0)
    return f"it held {peak / MIB:.0f} MiB of 64" if peak > 65 * MIB else ""


async def inode_bomb_in_memory(ground: Ground) -> str:
    """Makes files without end in /tmp: the memory they take is its own."""
    code = "import os\nn = 0\nwhile True:\n    os.close(os.open(f'/tmp/{n}', os.O_CREAT)); n += 1\n"
    ending = await ground.run([PYTHON, "-I", "-S", "-c", code], memory=32 * MIB, cap_ms=15_000)
    return "" if ending.outcome != Outcome.DONE else "it made as many as it liked"


async def disk_bomb(ground: Ground) -> str:
    """Fills the disk with one file."""
    return await _let_off(ground, f"{_MORE} >> x; do :; done")


async def disk_bomb_of_many_files(ground: Ground) -> str:
    """Fills the disk with many files, deep down."""
    return await _let_off(ground, "while mkdir d && cd d; do head -c 2000000 /dev/zero > x; sleep 0.02; done")


async def disk_bomb_without_a_name(ground: Ground) -> str:
    """Fills the disk with a file that was removed and is still open."""
    return await _let_off(ground, f"exec 5> x; rm x; {_MORE} >&5; do :; done")


async def disk_bomb_in_artifacts(ground: Ground) -> str:
    """Fills the disk where what it leaves would be stored, and leaves nothing."""
    return await _let_off(ground, f"cd $HEADWAY_ARTIFACTS; exec 5> x; rm x; {_MORE} >&5; do :; done")


async def disk_bomb_at_once(ground: Ground) -> str:
    """Reserves a disk without writing to it, faster than anybody can look."""
    code = (
        "import os\nfile = os.open('x', os.O_RDWR | os.O_CREAT)\n"
        "try: os.posix_fallocate(file, 0, 1 << 24)\nexcept OSError: pass\n"
        "import ctypes\nc = ctypes.CDLL(None, use_errno=True)\nc.fallocate(file, 1, 0, ctypes.c_long(1 << 33))\n"
        "print(os.fstat(file).st_blocks * 512)\n"
    )
    ending = await ground.run([PYTHON, "-I", "-S", "-c", code])
    got = int(ground.logs.get(ending.task, b"0") or b"0")
    return f"it got {got} bytes" if got > 32 * MIB else ""


async def inode_bomb_on_disk(ground: Ground) -> str:
    """Makes files without end in its workspace."""
    code = "import os\nn = 0\nwhile True:\n    os.close(os.open(f'{n}', os.O_CREAT)); n += 1\n"
    ending = await ground.run([PYTHON, "-I", "-S", "-c", code], disk=MIB, cpu=2000)
    return _unless_stopped(ending)


async def _let_off(ground: Ground, line: str) -> str:
    return _unless_stopped(await ground.run(["/bin/sh", "-c", line], disk=_BOMB_BYTES))


def _unless_stopped(ending: Ending) -> str:
    return "" if ending.code == "disk_exceeded" else f"it ended with {ending.code or 'success'}: {ending.message}"


async def descriptor_bomb(ground: Ground) -> str:
    """Opens files without end."""
    code = "import os\nn = 0\ntry:\n    while n < 100000:\n        os.dup(0); n += 1\nexcept OSError: pass\nprint(n)\n"
    ending = await ground.run([PYTHON, "-I", "-S", "-c", code])
    opened = int(ground.logs.get(ending.task, b"0"))
    return f"it opened {opened}" if opened > 10_000 or not opened else ""


async def cpu_spin(ground: Ground) -> str:
    """Spins in many processes: the 99th percentile of a neighbour that asked for as much at most doubles."""
    alone, beside = found = await slowed(ground)
    return f"{beside * 1000:.1f} ms instead of {alone * 1000:.1f} ms" if found.times > SLOWED_MAX else ""


async def deaf_to_sigterm(ground: Ground) -> str:
    """Does not hear SIGTERM: it is killed at the end of its grace."""
    began = time.monotonic()
    ending = await ground.run(["/bin/sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"], cap_ms=300, grace_ms=200)
    took = time.monotonic() - began
    return "" if ending.outcome == Outcome.CAPPED and took < PATIENCE_SECONDS else f"it ended after {took:.1f} s"


async def daemon(ground: Ground) -> str:
    """Forks twice into a session of its own, with an empty environment: it ends with its task."""
    line = "setsid sh -c 'trap \"\" TERM HUP INT; env -i sleep 600 & env -i sleep 600' & id -u; cat /proc/self/uid_map"
    ending = await ground.run(["/bin/sh", "-c", line])
    if "users" in ground.sandbox.degraded:  # it was the agent's user
        return ""
    inside, *mapped = map(int, ground.logs[ending.task].split())
    ranges = zip(mapped[::3], mapped[1::3], mapped[2::3], strict=True)
    user = next(outside + inside - first for first, outside, count in ranges if first <= inside < first + count)
    left: list[str] = []
    for _ in range(LOOKS):  # who was killed takes a moment to be gone
        left = [pid for pid in os.listdir("/proc") if pid.isdigit() and _owner(pid) == user]
        if not left:
            return ""
        await asyncio.sleep(LOOK_SECONDS)
    return f"processes {left} live on"


async def output_without_newline(ground: Ground) -> str:
    """Prints a megabyte without an end of line."""
    ending = await ground.run(["/bin/sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x"])
    length = len(ground.logs.get(ending.task, b""))
    return "" if (ending.outcome, length) == (Outcome.DONE, 1_000_000) else f"{length} bytes of it were kept"


async def invalid_text(ground: Ground) -> str:
    """Prints bytes that are no text, and leaves such a result."""
    line = "printf '\\377\\376\\0\\200'; printf '\\377' > $HEADWAY_OUTPUT"
    ending = await ground.run(["/bin/sh", "-c", line])
    return "" if ending.code == "output_invalid" and ending.result is None else f"its result is {ending.result!r}"


async def terminal_escapes(ground: Ground) -> str:
    """Has a name that would write into the terminal of whoever reads its message."""
    ending = await ground.run(["/bin/\x1b]0;owned\x07\x1b[2J"])
    return f"the message is {ending.message!r}" if any(ord(letter) < 32 for letter in ending.message) else ""


async def forged_result_markers(ground: Ground) -> str:
    """Prints what the sandbox and the agent tell each other when all is well, and fails."""
    lie = '{ "exit-code": 0 }\\nheld\\n{"outcome": 0, "result": "paid"}\\n'
    line = f"printf '{lie}'; for fd in 3 4 5 6 7 8 9; do printf '{lie}' >&$fd; done 2> /dev/null; exit 3"
    ending = await ground.run(["/bin/sh", "-c", line])
    if (ending.outcome, ending.exit_code, ending.result) == (Outcome.FAILED, 3, None):
        return ""
    return f"it passed for {ending.code or 'success'} with {ending.result!r}"


async def forged_faults_of_the_node(ground: Ground) -> str:
    """Prints what bubblewrap prints when the node is at fault, to be tried again at no cost."""
    line = 'echo "bwrap: Can\'t mount proc on /newroot/proc: Operation not permitted" >&2; exit 1'
    ending = await ground.run(["/bin/sh", "-c", line])
    return "" if ending.outcome == Outcome.FAILED else f"it passed for outcome {ending.outcome}"


async def a_link_for_a_result(ground: Ground) -> str:
    """Leaves a link to a file of the node where its result should be."""
    secret = str(ground.facts["secret_file"])
    ending = await ground.run(["/bin/sh", "-c", f"ln -s {secret} $HEADWAY_OUTPUT"])
    return "" if ending.code == "output_invalid" else f"it passed for {ending.code or 'success'}: {ending.result!r}"


async def a_pipe_for_a_result(ground: Ground) -> str:
    """Leaves a pipe where its result should be, for the agent to wait at."""
    ending = await ground.run(["/bin/sh", "-c", "mkfifo $HEADWAY_OUTPUT"])
    return "" if ending.code == "output_invalid" else f"it passed for {ending.code or 'success'}"


async def options_in_its_environment(ground: Ground) -> str:
    """Puts options of bubblewrap into its environment, where they would make another wall."""
    ending = await ground.run(["/bin/ls", "/host"], env={"X": "x\0--bind\0/\0/host", "LD_PRELOAD": "/workspace/x.so"})
    return "" if ending.outcome == Outcome.FAILED else "it saw the node's files"


async def a_directory_that_nobody_may_enter(ground: Ground) -> str:
    """Takes all rights from its directory, with files in it: the node removes it all the same."""
    ending = await ground.run(["/bin/sh", "-c", "mkdir a; touch a/b; chmod 0 a .; readlink /proc/self/cwd; exit 0"])
    if ending.outcome != Outcome.DONE and ending.code != "output_invalid":
        return f"it ended with {ending.code}: {ending.message}"
    return await _unless_removed(ground, "a")


async def directories_without_end(ground: Ground) -> str:
    """Makes directories within directories, deeper than a path is long: the node removes them all the same."""
    code = "import os\nos.mkdir('deep'); os.chdir('deep')\nfor _ in range(3000):\n    os.mkdir('d'); os.chdir('d')\n"
    ending = await ground.run([PYTHON, "-I", "-S", "-c", code], cpu=1000)
    if ending.outcome != Outcome.DONE and ending.code != "disk_exceeded":
        return f"it ended with {ending.code}: {ending.message}"
    return await _unless_removed(ground, "deep")


async def _unless_removed(ground: Ground, name: str) -> str:
    place = Path(ground.sandbox.place, "attempts")
    give_up = time.monotonic() + PATIENCE_SECONDS
    while any(os.path.lexists(one / "work" / name) or _is_being_removed(one) for one in place.iterdir()):
        if time.monotonic() > give_up:
            return "it is still there"
        await asyncio.sleep(0.05)
    return ""


def _is_being_removed(place: Path) -> bool:
    try:
        return any(name.startswith(removing.NAME) for name in os.listdir(place))
    except OSError:
        return False


def _owner(pid: str) -> int:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return -1 if state == "Z" else os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return -1


_JUDGED_OUTSIDE: tuple[Try, ...] = (
    fork_bomb, memory_bomb, memory_bomb_in_files, memory_bomb_in_the_page_cache, inode_bomb_in_memory, disk_bomb,
    disk_bomb_of_many_files, disk_bomb_without_a_name, disk_bomb_in_artifacts, disk_bomb_at_once,
    inode_bomb_on_disk, descriptor_bomb,
    cpu_spin, deaf_to_sigterm, daemon, output_without_newline, invalid_text, terminal_escapes, forged_result_markers,
    forged_faults_of_the_node, a_link_for_a_result, a_pipe_for_a_result, options_in_its_environment,
    a_directory_that_nobody_may_enter, directories_without_end,
)  # fmt: skip
_HELD_BY_GROUPS: frozenset[Try] = frozenset(
    {cpu_spin, fork_bomb, memory_bomb, memory_bomb_in_files, memory_bomb_in_the_page_cache, inode_bomb_in_memory}
)
