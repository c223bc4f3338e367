"""Why something a client said cannot be: a value, not an exception."""

from __future__ import annotations

import msgspec


class Refused(msgspec.Struct, frozen=True):
    """One thing that is wrong: where (`resources.cpu`) and what was expected there."""

    path: str
    message: str
