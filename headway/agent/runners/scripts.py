"""How an uploaded script is run: by its first line, or by /bin/sh when it has none."""

from __future__ import annotations

from pathlib import Path


def argv(path: Path, shown_as: str) -> list[str]:
    """What to execute for the script in this file, where it is shown."""
    with path.open("rb") as body:
        has_interpreter = body.read(2) in (b"#!", b"\x7fE")
    return [shown_as] if has_interpreter else ["/bin/sh", shown_as]
