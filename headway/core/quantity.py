"""Durations, sizes and rates as people write them: "90s", "15m", "1h30m", 90, "90", "512Mi", 2, "60 per minute"."""

from __future__ import annotations

import re
from functools import lru_cache

from headway.core.refusal import Refused

_UNIT_SECONDS = (86400.0, 3600.0, 60.0, 1.0, 0.001)
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"  # and no other digits: `\d` takes those of every script there is
_DURATION = re.compile("".join(f"(?:({_NUMBER}){unit})?" for unit in ("d", "h", "m", "s", "ms")))
_SECONDS = re.compile(_NUMBER)
_SIZE_UNITS = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
}  # fmt: skip
_SIZE = re.compile(rf"({_NUMBER})(k|M|G|T|Ki|Mi|Gi|Ti)?B?")
_RATE = re.compile(r"([0-9]{1,9})(?: *per +| */ *)([a-z0-9.]+)")
_PERIODS = {
    word: text
    for text, words in (
        ("1s", ("s", "sec", "second")), ("1m", ("m", "min", "minute")), ("1h", ("h", "hour")), ("1d", ("d", "day")),
    )
    for word in words
}  # fmt: skip
TEXT_CHARS_MAX = 40
DURATION_SECONDS_MAX = 366 * 86400.0
SIZE_BYTES_MAX = 2**60
EVEN_CHARS_MAX = 6
"""`1536Mi` and `9999Gi` are said as they are; what takes more digits is rounded."""
_BINARY = tuple((unit, _SIZE_UNITS[unit]) for unit in ("Ti", "Gi", "Mi", "Ki"))
COUNT_MAX = 1_000_000_000
SIZED = frozenset({"memory", "disk", "storage"})
"""Resources that are counted in bytes. Cpu is counted in thousandths, everything else in ones."""


def duration_ms(value: object, path: str, *, least_ms: int = 0) -> int | Refused:
    """Milliseconds in a duration, or why it is none."""
    if isinstance(value, str) and len(value) > TEXT_CHARS_MAX:
        value = None  # no duration, and nothing to remember
    return _duration_ms(value, path, least_ms)


@lru_cache(maxsize=4096, typed=True)
def _duration_ms(value: object, path: str, least_ms: int) -> int | Refused:
    """Clients repeat themselves, hence the cache (3 µs a task saved)."""
    seconds = _seconds(value)
    if seconds is None:
        return Refused(path, 'expected a duration: seconds as a number, or text such as "90s", "15m", "1h30m"')
    if seconds > DURATION_SECONDS_MAX:
        return Refused(path, "must not exceed 366 days")
    milliseconds = round(seconds * 1000)
    if milliseconds < least_ms:
        return Refused(path, f"must be at least {least_ms / 1000:g}s")
    return milliseconds


def _seconds(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(min(value, 2 * DURATION_SECONDS_MAX)) if value >= 0 else None  # JSON's integers exceed floats
    if not isinstance(value, str):
        return None
    if _SECONDS.fullmatch(value):  # a command line has only texts: `--delay-tolerance 0`
        return float(value)
    match = _DURATION.fullmatch(value)
    if not value or match is None:
        return None
    return sum(float(said) * seconds for said, seconds in zip(match.groups(), _UNIT_SECONDS, strict=True) if said)


def size_bytes(value: object, path: str) -> int | Refused:
    """Bytes in a size, or why it is none."""
    size: float | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    elif isinstance(value, str) and len(value) <= TEXT_CHARS_MAX and (match := _SIZE.fullmatch(value)):
        size = float(match[1]) * _SIZE_UNITS[match[2] or ""]
    if size is None or size < 0:
        return Refused(path, 'expected a size: bytes as an integer, or text such as "512Mi", "4Gi"')
    if size > SIZE_BYTES_MAX:
        return Refused(path, "must not exceed 1 EiB")
    return int(size)


def milli(value: object, path: str) -> int | Refused:
    """Thousandths of a countable resource such as cpu: 2 → 2000, 0.5 → 500."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        return Refused(path, "expected a number of at least 0, such as 2 or 0.5")
    if value > 1_000_000:
        return Refused(path, "must not exceed 1000000")
    return round(value * 1000)


def counted(name: str, value: object, path: str) -> int | Refused:
    """So much of a resource as the integer it is counted in, or why it is none."""
    if name in SIZED:
        return size_bytes(value, path)
    if name == "cpu":
        return milli(value, path)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= COUNT_MAX:
        return value
    return Refused(path, f"expected a whole number from 0 to {COUNT_MAX}")


def amount_text(name: str, value: int) -> str:
    """So much of a resource as people say it: `0.5`, `512Mi`, `22.3Gi`. Sizes that are not even are rounded down."""
    if name == "cpu":
        return f"{value / 1000:g}"
    if name not in SIZED or value < 2**10:
        return str(value)
    unit, size = next((unit, size) for unit, size in _BINARY if value >= size)
    even = next((f"{value // less}{name}" for name, less in _BINARY if value % less == 0), "")
    if 0 < len(even) <= EVEN_CHARS_MAX:
        return even
    whole, tenths = divmod(value * 10 // size, 10)
    return f"{whole}.{tenths}{unit}" if tenths else f"{whole}{unit}"


def rate_text(value: str, path: str) -> tuple[int, int] | Refused:
    """How many per how many milliseconds, or why it is none: "60 per minute", "60/m", "10 per 90s"."""
    match = _RATE.fullmatch(value.strip()) if len(value) <= TEXT_CHARS_MAX else None
    per = duration_ms(_PERIODS.get(match[2], match[2]), path) if match else None
    if match is None or not isinstance(per, int):
        return Refused(path, 'expected a whole number, or text such as "60 per minute", "60/m", "10 per 90s"')
    return int(match[1]), per
