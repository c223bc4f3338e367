"""Where the server is and which key opens it.

In this order: what the caller said, HEADWAY_URL and HEADWAY_KEY, a profile in the user's configuration, the
ready file of the `headway dev` that runs in the default data directory. Nothing here talks to a server.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, cast

from headway.sdk.errors import DiscoveryError

READY_FILE = "ready.json"


class Server(NamedTuple):
    """Where to go with which key, and what said so."""

    url: str
    key: str
    said_by: str


def discover(url: str | None = None, key: str | None = None, environ: Mapping[str, str] = os.environ) -> Server:
    """The server to talk to; raises DiscoveryError when nothing names one."""
    url, key = url or environ.get("HEADWAY_URL"), key or environ.get("HEADWAY_KEY")
    if url and key:
        return Server(url, key, "--url and --key, or HEADWAY_URL and HEADWAY_KEY")
    found = from_profile(environ) or from_dev(environ)
    if found is None or (url and url.rstrip("/") != found.url.rstrip("/") and not key):
        raise DiscoveryError(_nothing_found(url, environ))
    return Server(url or found.url, key or found.key, found.said_by)


def from_profile(environ: Mapping[str, str] = os.environ) -> Server | None:
    """The server in the user's configuration, profile HEADWAY_PROFILE or `default`."""
    path = config_file(environ)
    name = environ.get("HEADWAY_PROFILE", "default")
    if path is None or not path.is_file():
        return None
    import tomllib  # only who has a configuration pays for reading it

    try:
        said = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise DiscoveryError(f"{path} cannot be read: {error}") from error
    profile = _table(_table(said.get("profile")).get(name))
    url, key = profile.get("url"), profile.get("key")
    if not profile and "HEADWAY_PROFILE" not in environ:
        return None
    if not isinstance(url, str) or not isinstance(key, str):
        raise DiscoveryError(f'{path}: [profile.{name}] needs url = "…" and key = "…"')
    return Server(url, key, f"profile {name} of {path}")


def from_dev(environ: Mapping[str, str] = os.environ) -> Server | None:
    """The `headway dev` that runs in the default data directory; None when it is gone."""
    directory = default_data_dir(environ)
    if directory is None:
        return None
    try:
        said = _table(json.loads((directory / READY_FILE).read_text()))
    except (OSError, ValueError):
        return None
    url, key, pid = said.get("url"), said.get("key"), said.get("pid")
    if isinstance(url, str) and isinstance(key, str) and isinstance(pid, int) and _lives(pid):
        return Server(url, key, f"headway dev, process {pid}")
    return None


def default_data_dir(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Where `headway dev` keeps its data unless told: one place per user. None without a home."""
    if said := environ.get("XDG_DATA_HOME"):
        return Path(said) / "headway" / "dev"
    home = environ.get("HOME")
    return Path(home) / ".local" / "share" / "headway" / "dev" if home else None


def config_file(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The user's configuration file, there or not."""
    if said := environ.get("XDG_CONFIG_HOME"):
        return Path(said) / "headway" / "config.toml"
    home = environ.get("HOME")
    return Path(home) / ".config" / "headway" / "config.toml" if home else None


def _nothing_found(url: str | None, environ: Mapping[str, str]) -> str:
    if url:
        return f"there is no key for {url}: pass --key, or set HEADWAY_KEY."
    directory = default_data_dir(environ)
    return (
        "no Headway server found: neither --url/--key nor HEADWAY_URL/HEADWAY_KEY is set, there is no "
        f"profile in {config_file(environ) or '~/.config/headway/config.toml'}, and no `headway dev` runs in "
        f"{directory or 'the default data directory (HOME is not set)'}.\n"
        "Start one on this machine with `headway dev`."
    )


def _table(said: object) -> dict[str, object]:
    return cast("dict[str, object]", said) if isinstance(said, dict) else {}


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
