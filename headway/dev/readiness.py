"""Asks a server whether a node is there. One request of HTTP/1.0 by hand: a library would double the
supervisor.
"""

from __future__ import annotations

import asyncio
import json
from typing import cast

ANSWER_SECONDS = 5.0
ANSWER_BYTES_MAX = 1024 * 1024


class KeyRefused(Exception):
    """The server answers, and does not know the key."""


async def ready_node(host: str, port: int, key: str, node: str, *, functions: bool) -> dict[str, object] | None:
    """The node, when it is connected and, if asked, offers functions."""
    listed = cast("dict[str, object]", await get_json(host, port, key, "/v1/nodes") or {})
    for said in cast("list[dict[str, object]]", listed.get("items") or []):
        if said.get("name") == node and said.get("connected", True):
            return said if not functions or said.get("functions") != [] else None
    return None


async def get_json(host: str, port: int, key: str, path: str) -> object:
    """The answer to a GET, or None when there is no good one; raises KeyRefused when the key is none."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            head, _, body = (await _get(host, port, key, path)).partition(b"\r\n\r\n")
    except (OSError, TimeoutError):
        return None
    status = head.partition(b"\r\n")[0]
    if b" 401 " in status:
        raise KeyRefused
    if b" 200 " not in status:
        return None
    try:
        return json.loads(body)
    except ValueError:
        return None


async def _get(host: str, port: int, key: str, path: str) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n\r\n".encode())
        await writer.drain()
        answer = b""
        while len(answer) < ANSWER_BYTES_MAX and (piece := await reader.read(65536)):
            answer += piece
        return answer
    finally:
        writer.close()
