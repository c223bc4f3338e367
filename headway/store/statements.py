"""Named SQL statements out of the `.sql` files beside this module.

A statement starts at a line `-- name: word` and runs to the next; comments below the name say what it promises.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_NAMED = re.compile(r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)


@cache
def statements(file: str) -> dict[str, str]:
    """All statements of `sql/<file>.sql` by name."""
    text = (files("headway.store") / "sql" / f"{file}.sql").read_text()
    return {name: body.strip() for name, body in _NAMED.findall(text)}


def all_statements() -> dict[str, str]:
    """Every statement of every file as `file.name`; what the tests PREPARE and EXPLAIN."""
    sources = sorted(entry.name for entry in (files("headway.store") / "sql").iterdir() if entry.name.endswith(".sql"))
    return {f"{source[:-4]}.{name}": sql for source in sources for name, sql in statements(source[:-4]).items()}
