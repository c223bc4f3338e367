"""Whether an app can be imported, found out at the start: a typing error in `--app` is told at once and in a line.

A process of its own imports it, as its workers will; the supervisor stays small and clear of a client's code.
"""

from __future__ import annotations

import asyncio
import sys

_IMPORT = "import sys; from headway.agent.worker_process import load; load(sys.argv[1])"


async def why_not_imported(app: str) -> str | None:
    """The last line of what Python says to the import, or None when it goes well."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _IMPORT, app),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        process_group=0,
    )
    try:
        _, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode == 0:
        return None
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"its import ended the process with {process.returncode}"
