"""`headway agent`: a node that runs commands and scripts, and an app's functions when it is given one."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headway.cli import options, trouble
from headway.core.quantity import SIZED, milli, size_bytes
from headway.core.refusal import Refused
from headway.sdk.discovery import default_data_dir, discover

if TYPE_CHECKING:
    from headway.agent.images.store import ImageSettings

_SET_OTHERWISE = {"ports": "--ports LOW-HIGH", "workers": "--workers N"}
LOCAL_IMAGES = "local-images"
"""Where images are looked for in the data directory."""
RESOURCE_MAX = 2**60
_GPU = re.compile(r"[A-Za-z0-9][A-Za-z0-9_/:.-]{0,127}")


def port_range(_: click.Context, option: click.Parameter, said: str | None) -> tuple[int, int] | None:
    """`20000-29999` as its ends."""
    if said is None:
        return None
    first, _dash, last = said.partition("-")
    if not (first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) < 65_536):
        raise click.BadParameter(f"expected LOW-HIGH, such as 20000-29999, not {said!r}", param=option)
    return int(first), int(last)


def size(_: click.Context, option: click.Parameter, said: str | None) -> int | None:
    """`512Mi` in bytes."""
    found = None if said is None else size_bytes(said, "")
    if isinstance(found, Refused):
        raise click.BadParameter(f"{said!r}: {found.message}", param=option)
    return found


def gpu_ids(_: click.Context, option: click.Parameter, said: str | None) -> tuple[str, ...] | None:
    """`0,2` or UUIDs as a tuple."""
    if said is None:
        return None
    ids = tuple(said.split(","))
    if not all(_GPU.fullmatch(one) for one in ids) or len(set(ids)) < len(ids):
        raise click.BadParameter(f"expected ids, each once, such as 0,2 or GPU-5f3c…, not {said!r}", param=option)
    return ids


def gpu_devices(_: click.Context, option: click.Parameter, said: tuple[str, ...]) -> dict[str, tuple[Path, ...]]:
    """`0=/dev/nvidia0` by id; an id may have several."""
    found: dict[str, tuple[Path, ...]] = {}
    for one in said:
        number, path = (*one.split("=", 1), "")[:2]
        if not _GPU.fullmatch(number) or not Path(path).is_char_device():
            raise click.BadParameter(f"expected ID=PATH of a device file, not {one!r}", param=option)
        found[number] = (*found.get(number, ()), Path(path))
    return found


_AGENT = [
    click.option("--url", metavar="URL", help="The server (default: HEADWAY_URL)."),
    click.option("--key", metavar="KEY", help="The node's key (better: HEADWAY_KEY)."),
    click.option("--node", metavar="NAME", help="What this node is called (default: the host's name)."),
    click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="Where it keeps its files."),
    click.option("--workers", type=click.IntRange(0, 1024), help="Functions at a time (default: one per cpu)."),
    click.option("--worker-memory", metavar="SIZE", callback=size, help="For each (default: an equal share)."),
    click.option("--capacity", multiple=True, metavar="K=V", callback=options.pairs, help="Such as cpu=2."),
    click.option(
        "--resource", "resources", multiple=True, metavar="K=V", callback=options.pairs, help="Also has gpu=2."
    ),
    click.option(
        "--at-most", multiple=True, metavar="K=V", callback=options.pairs, help="Offer no more than cpu=2 of it."
    ),
    click.option(
        "--reserve", multiple=True, metavar="K=V", callback=options.pairs, help="Keep memory=2Gi for the machine."
    ),
    click.option("--gpus", metavar="ID,ID", callback=gpu_ids, help="Which GPUs it lends (default: all it finds)."),
    click.option(
        "--gpu-device",
        "gpu_files",
        metavar="ID=PATH",
        multiple=True,
        callback=gpu_devices,
        help="A device file of a GPU, where it is not found by number.",
    ),
    click.option("--ports", metavar="LOW-HIGH", callback=port_range, help="Which ports tasks may get (20000-29999)."),
    click.option(
        "--cpu-quota", is_flag=True, help="Give tasks no more cpu than they ask for even while there is more."
    ),
    click.option(
        "--sandbox/--no-sandbox", "sandbox", default=True, help="Whether it runs sandboxed tasks, if it can (default)."
    ),
    click.option(
        "--images",
        "image_dirs",
        multiple=True,
        metavar="DIR",
        help="Where images are, as OCI layouts or tars.",
        type=click.Path(path_type=Path, exists=True, file_okay=False, resolve_path=True),
    ),
    click.option("--registry", "registries", multiple=True, metavar="HOST", help="Fetch images from these alone."),
    click.option(
        "--registry-auth",
        metavar="FILE",
        help="Credentials for them, as `skopeo login` writes them.",
        type=click.Path(path_type=Path, exists=True, dir_okay=False, resolve_path=True),
    ),
    click.option("--cache", metavar="SIZE", callback=size, help="For scripts and bundles that were fetched (4Gi)."),
    click.option("--container-engine", metavar="SOCKET", help="Have podman or Docker run images."),
    click.option("--image-cache", metavar="SIZE", callback=size, help="For unpacked images (20Gi)."),
    click.option(
        "--warm-slots", type=click.IntRange(0, 1000), metavar="N", help="At most so many prepared sandboxes; 0: none."
    ),
    click.option(
        "--show",
        "shown",
        multiple=True,
        type=click.Path(path_type=Path, exists=True, resolve_path=True),
        metavar="DIR",
        help="A directory that sandboxed tasks see, read-only.",
    ),
    click.option("--label", "labels", multiple=True, metavar="K=V", callback=options.pairs, help="A label."),
]


def agent_options(command: options.Command) -> options.Command:
    """Adds what agents and workers have in common."""
    for option in reversed(_AGENT):
        command = option(command)
    return command


@click.command("agent")
@agent_options
@click.option("--app", metavar="MODULE:app", help="Also run the functions of this app.")
def command(app: str | None, **said: Any) -> int:
    """Run the agent of a node: it takes tasks from the server and runs them here."""
    functions = ["function"] if app else []
    return start(["command", "script", *functions], app, **said)


def start(
    kinds: Iterable[str],
    app: str | None,
    *,
    url: str | None,
    key: str | None,
    node: str | None,
    data: Path | None,
    workers: int | None,
    worker_memory: int | None,
    capacity: Mapping[str, str],
    resources: Mapping[str, str],
    at_most: Mapping[str, str],
    reserve: Mapping[str, str],
    gpus: tuple[str, ...] | None,
    gpu_files: dict[str, tuple[Path, ...]],
    ports: tuple[int, int] | None,
    labels: dict[str, str],
    cpu_quota: bool,
    sandbox: bool,
    image_dirs: tuple[Path, ...],
    registries: tuple[str, ...],
    registry_auth: Path | None,
    cache: int | None,
    image_cache: int | None,
    container_engine: str | None,
    shown: tuple[Path, ...],
    warm_slots: int | None,
) -> int:
    """Runs an agent until it is told to stop; answers its exit code."""
    from headway.agent.agent import AgentSettings
    from headway.agent.cache import CACHE_BYTES_MAX
    from headway.agent.capacity import cpus
    from headway.agent.ports import FIRST, LAST
    from headway.app import run_agent

    if capacity and (at_most or reserve):
        raise trouble.Stopped("--capacity says all that is offered; leave out --at-most and --reserve", trouble.USAGE)
    offer = {
        "capacity": amounts(capacity) or None,
        "resources": amounts(resources, "--resource"),
        "at_most": amounts(at_most, "--at-most"),
        "reserve": amounts(reserve, "--reserve"),
    }
    server = discover(url, key)
    os.environ.pop("HEADWAY_KEY", None)  # tasks inherit the environment; the node's key is not for them
    name = node or socket.gethostname()
    settings = AgentSettings(
        url=server.url,
        key=server.key,
        node=name,
        data_dir=data or _data_dir(name),
        kinds=frozenset(kinds),
        app=app,
        workers=workers if workers is not None else cpus(),
        worker_memory=worker_memory,
        gpus=gpus,
        gpu_devices=gpu_files,
        ports=ports or (FIRST, LAST),
        labels=labels,
        cache_bytes=cache or CACHE_BYTES_MAX,
        engine=None if container_engine is None else container_engine.removeprefix("unix://"),
        images=_images(
            image_dirs or ((data or _data_dir(name)) / LOCAL_IMAGES,), registries, registry_auth, image_cache
        ),
    )
    walls = {"has_cpu_quota": cpu_quota, "has_sandbox": sandbox, "shown": shown, "warm_slots": warm_slots}
    return run_agent(replace(settings, **offer, **walls))


def _images(
    directories: tuple[Path, ...], registries: tuple[str, ...], auth_file: Path | None, cache: int | None
) -> ImageSettings:
    from headway.agent.images.fetch import REGISTRIES, Registries
    from headway.agent.images.store import CACHE_BYTES, ImageSettings

    asked = Registries(allowed=registries or REGISTRIES, auth_file=auth_file)
    return ImageSettings(directories=directories, registries=asked, cache_bytes=cache or CACHE_BYTES)


def amounts(said: Mapping[str, str], option: str = "--capacity") -> dict[str, int]:
    """cpu=2, memory=4Gi … as the integers resources are counted in."""
    counted: dict[str, int] = {}
    for name, text in said.items():
        value = options.number(text)
        if name in _SET_OTHERWISE:
            raise trouble.Stopped(f"{option} {name}={text}: say {_SET_OTHERWISE[name]} instead", trouble.USAGE)
        path = f"capacity.{name}"
        amount = milli(value, path) if name == "cpu" else size_bytes(value, path) if name in SIZED else value
        if isinstance(amount, int) and not 0 <= amount <= RESOURCE_MAX:
            amount = Refused(path, "expected a whole number from 0 on")
        if isinstance(amount, Refused) or not isinstance(amount, int):
            why = amount.message if isinstance(amount, Refused) else "expected a whole number"
            raise trouble.Stopped(f"{option} {name}={text}: {why}", trouble.USAGE)
        counted[name] = amount
    return counted


def _data_dir(node: str) -> Path:
    beside = default_data_dir()
    if beside is None:
        raise trouble.Stopped("HOME is not set, so name a directory: --data DIR", trouble.USAGE)
    return beside.parent / "agent" / node
