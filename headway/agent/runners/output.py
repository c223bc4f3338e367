"""The result of a process: what it left in the file that $HEADWAY_OUTPUT names."""

from __future__ import annotations

import os
import stat

import msgspec

from headway.wire import RESULT_BYTES_MAX

OUTPUT = "headway-output.json"

_decode_any = msgspec.json.Decoder().decode


def output(directory: str) -> tuple[str | None, str]:
    """The result that a process left in $HEADWAY_OUTPUT, or what is wrong with it."""
    try:
        # The file is the task's: it may be a link to somebody else's, or a pipe that would block us.
        fd = os.open(f"{directory}/{OUTPUT}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, f"$HEADWAY_OUTPUT cannot be read ({error.strerror}); write a plain file"
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None, "$HEADWAY_OUTPUT is not a plain file"
        body = file.read(RESULT_BYTES_MAX + 1)
    if len(body) > RESULT_BYTES_MAX:
        return None, f"$HEADWAY_OUTPUT exceeds {RESULT_BYTES_MAX} bytes; store the data elsewhere and write its place"
    try:
        _decode_any(body)
        return body.decode(), ""
    except RecursionError:
        return None, "$HEADWAY_OUTPUT is nested too deeply; write flatter JSON"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return None, f"$HEADWAY_OUTPUT is not JSON: {error}"
