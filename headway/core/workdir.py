"""Where in its workspace a process starts: a directory of its bundle, or one that is made for it."""

from __future__ import annotations

WORKDIR_CHARS_MAX = 1024


def wrong_workdir(workdir: str) -> str | None:
    """What is wrong with it, if anything: it stays in the workspace."""
    steps = workdir.split("/")
    if not workdir or len(workdir) > WORKDIR_CHARS_MAX:
        return f"expected a path of 1 to {WORKDIR_CHARS_MAX} characters"
    if workdir.startswith("/") or ".." in steps or "\0" in workdir:
        return "expected a path within the workspace, such as src/jobs"
    return None
