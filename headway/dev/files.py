"""The files of a development server: its keys, and the notes that say where it is to programs (JSON) and to
shells. All 0600, all written whole.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import shlex
import socket
from pathlib import Path
from typing import NamedTuple


class Keys(NamedTuple):
    """One key to submit with, one for the node."""

    client: str
    node: str


def keep_keys(path: Path) -> Keys:
    """The keys in `path`, made at the first start."""
    try:
        said = json.loads(path.read_text())
        return Keys(said["client"], said["node"])
    except FileNotFoundError:
        keys = Keys(new_key(), new_key())
        write_json(path, keys._asdict())
        return keys
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} holds no keys; remove it, and new ones are made") from None


def new_key() -> str:
    """hw_<8 lowercase base32>_<43 urlsafe base64>: a public id and 256 bits."""
    public = base64.b32encode(secrets.token_bytes(5)).decode().lower()
    return f"hw_{public}_{secrets.token_urlsafe(32)}"


def write_json(path: Path, said: object) -> None:
    """Writes a note for programs."""
    write_whole(path, json.dumps(said) + "\n")


def write_exports(path: Path, url: str, key: str) -> None:
    """Writes a note for shells: after `. PATH` the command line finds the server."""
    write_whole(path, f"export HEADWAY_URL={shlex.quote(url)} HEADWAY_KEY={shlex.quote(key)}\n")


def write_whole(path: Path, text: str) -> None:
    """Writes what only its owner reads; a reader sees all of it or none."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        unfinished.unlink()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(unfinished, flags, 0o600), "w") as file:
        file.write(text)
    unfinished.replace(path)


def free_port(host: str, port: int) -> int:
    """`port` itself, or for 0 one that is free; raises OSError when it is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # so does the server
        probe.bind((host, port))
        return int(probe.getsockname()[1])
