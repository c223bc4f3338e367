"""Arrivals from a file: last week's tasks, to be simulated with other nodes. CSV (`.gz` too), or Parquet with an extra.

One row is one task. What no column says is what the trace's `defaults` say, or what a gateway would fill in; what a
gateway would refuse is refused here, with its row. Tasks alike make one stream; of each, only its time, its duration
and its cap are kept.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (pyarrow ships no types; what it reads is checked cell by cell)
from __future__ import annotations

import csv
import gzip
import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from random import Random
from typing import Literal

from headway.core.placement import NodeRoom, Shape
from headway.core.quantity import duration_ms
from headway.core.refusal import Refused
from headway.core.resources import nearest
from headway.core.task import Admitted, Submission, Tier, admit
from headway.sim.scenario import Trace
from headway.sim.stream import Stream

REQUIRED = ("submitted_at", "duration")
RESOURCES = ("cpu", "memory", "disk", "gpu")
KINDS = (
    "tenant", "name", "tier", *RESOURCES, "delay_tolerance", "off_peak", "preemptible",
    "checkpoint_every", "periodic",
)  # fmt: skip
"""Columns in which tasks of one kind are alike."""
COLUMNS = (*REQUIRED, "execution_cap", *KINDS)
TASKS_MAX = 50_000_000
FLAGS = {"true": True, "1": True, "yes": True, "t": True, "false": False, "0": False, "no": False, "f": False}
Cell = str | int | float | bool | datetime | None
Said = dict[str, Cell]


class TraceError(ValueError):
    """A trace that is not in order; the message names the file, and the row and column."""


class Arrivals:
    """The tasks of one kind, in the order they arrive."""

    def __init__(self, said: Said, where: str) -> None:
        self.said = said
        """What all of them say, by column; what is not said is not in it."""
        self.where = where
        """The first of them, for what may be wrong with all."""
        self.times = array("d")
        self.durations = array("d")
        self.caps = array("q")
        """Milliseconds; 0 where the tier's counts."""


def read(said: Trace, path: Path, *, horizon: float, load: float, chance: Random) -> list[Arrivals]:
    """All that arrives before the horizon, by kind. A simulation begins with the first row."""
    return _Reader(said, path).read(horizon, load, chance)


def flag(said: Said, name: str, where: str) -> bool:
    """Whether a column says yes."""
    value = said.get(name, False)
    found = value if isinstance(value, bool) else FLAGS.get(str(value).lower())
    if found is None:
        raise TraceError(f"{where}: {name}: expected true or false, not {value!r}")
    return found


def stream(one: Arrivals, number: int, tenant: int, tier: str, tiers: dict[str, Tier], *, is_grouped: bool) -> Stream:
    """The tasks of one kind as a simulation takes them; with very many tenants, reported by tier."""
    said = one.said
    submission = Submission(
        name=str(said.get("name", "task")), command=["simulated"], tier=str(said.get("tier", tier)),
        resources={name: _plain(said[name]) for name in RESOURCES if name in said},
        delay_tolerance=_plain(said.get("delay_tolerance", "5m")), off_peak=_off_peak(one),
    )  # fmt: skip
    found = admit(submission, tiers)
    if not isinstance(found, Admitted):
        raise TraceError("\n".join(f"{one.where}: {refused.path}: {refused.message}" for refused in found))
    group = f"tier {found.tier}" if is_grouped else str(said.get("tenant", "default"))
    made = Stream(number, tenant, group, submission.name or "", found, periodic=flag(said, "periodic", one.where))
    made.become(Shape("command", dict(found.needs), found.tier, preemptible=flag(said, "preemptible", one.where)))
    durations, made.caps = iter(one.durations), iter(one.caps)
    made.draw, made.arrive = lambda _: next(durations), one.times
    if "checkpoint_every" in said:
        every = duration_ms(_plain(said["checkpoint_every"]), "checkpoint_every")
        if isinstance(every, Refused) or every < 1000:
            raise TraceError(f"{one.where}: checkpoint_every: expected a duration of at least 1s")
        made.checkpoint_every = every / 1000
    return made


def check_fits(one: Arrivals, stream: Stream, rooms: Mapping[str, NodeRoom]) -> None:
    """Refuses what no node could ever run, were it idle."""
    if not any(room.could_run(stream.shape) for room in rooms.values()):
        node, lacks = nearest(stream.shape.needs, {name: room.capacity for name, room in rooms.items()})
        raise TraceError(f"{one.where}: fits no node: {', '.join(lacks)} of {node}, the nearest, is less")


def _off_peak(one: Arrivals) -> Literal["allow", "require", "never"]:
    match one.said.get("off_peak", "allow"):
        case "allow" | "require" | "never" as found:
            return found
        case other:
            raise TraceError(f"{one.where}: off_peak: expected allow, require or never, not {other!r}")


def _plain(value: Cell) -> str | int | float:
    """A number where a text is one."""
    if isinstance(value, str) and _is_number(value):
        value = float(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, str | int | float) else str(value)


class _Reader:
    """Reads a trace from its beginning."""

    def __init__(self, said: Trace, path: Path) -> None:
        self._path = path
        self._named = said.columns
        self._defaults: Said = dict(said.defaults)
        self._kinds: dict[tuple[Cell, ...], Arrivals] = {}

    def read(self, horizon: float, load: float, chance: Random) -> list[Arrivals]:
        whole, part = divmod(load, 1.0)
        first = before = -math.inf
        kept = 0
        for number, row in self._rows():
            at = self._moment(row, number)
            if first == -math.inf:
                first = at
            if at < before:
                raise self._wrong(number, "submitted_at", "is before the row above; sort the rows by it")
            before = at
            if at - first >= horizon:
                break
            copies = int(whole) + (chance.random() < part)
            kept += copies
            if kept > TASKS_MAX:
                raise self._wrong(number, "submitted_at", f"these are more than {TASKS_MAX:,} tasks; cut the horizon")
            self._add(row, number, at - first, copies)
        if not kept:
            raise TraceError(f"{self._path}: no task arrives in it")
        return list(self._kinds.values())

    def _add(self, row: Said, number: int, at: float, copies: int) -> None:
        alike = tuple(row.get(name) for name in KINDS)
        found = self._kinds.get(alike)
        if found is None:
            said: Said = {name: value for name, value in zip(KINDS, alike, strict=True) if value is not None}
            found = self._kinds[alike] = Arrivals(said, f"{self._path}: row {number}")
        duration = self._seconds(row, "duration", number)
        cap_ms = round(self._seconds(row, "execution_cap", number) * 1000) if row.get("execution_cap") else 0
        for _ in range(copies):
            found.times.append(at)
            found.durations.append(duration)
            found.caps.append(cap_ms)

    # ── cells ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _moment(self, row: Said, number: int) -> float:
        value = row.get("submitted_at")
        try:
            if isinstance(value, str):
                value = float(value) if _is_number(value) else datetime.fromisoformat(value)
            if isinstance(value, datetime):
                value = (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
        except ValueError:
            value = None
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise self._wrong(number, "submitted_at", "expected seconds, or a time such as 2026-11-19T08:30:00Z")
        return float(value)

    def _seconds(self, row: Said, name: str, number: int) -> float:
        value = row.get(name)
        if isinstance(value, str) and _is_number(value):
            value = float(value)
        if value is None or isinstance(value, datetime):
            raise self._wrong(number, name, "expected a duration such as 90s, or seconds")
        found = duration_ms(value, name)
        if isinstance(found, Refused):
            raise self._wrong(number, name, found.message)
        return max(found / 1000, 0.001)

    def _wrong(self, number: int, name: str, what: str) -> TraceError:
        column = self._named.get(name, name)
        return TraceError(f"{self._path}: row {number}: {column}: {what}")

    # ── rows ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _rows(self) -> Iterator[tuple[int, Said]]:
        """Each row with its number, under our names; what is empty is left out."""
        try:
            rows = (_parquet if self._path.suffix == ".parquet" else _text)(self._path)
            headings = [str(heading) for heading in next(rows, [])]
            found = self._places(headings)
            for number, cells in enumerate(rows, start=1):
                if len(cells) != len(headings):
                    raise TraceError(f"{self._path}: row {number}: {len(cells)} cells below {len(headings)} headings")
                row = dict(self._defaults)
                for name, place in found:
                    value = cells[place]
                    if value is not None and value != "":
                        row[name] = value
                yield number, row
        except (OSError, UnicodeDecodeError, csv.Error, EOFError) as error:
            raise TraceError(f"{self._path}: cannot be read: {error}") from None

    def _places(self, headings: list[str]) -> list[tuple[str, int]]:
        """Which column is what; a heading that is nearly one of ours is a mistake, any other is somebody else's."""
        known = {name: self._named.get(name, name) for name in COLUMNS}
        missing = [known[name] for name in REQUIRED if known[name] not in headings and name not in self._defaults]
        missing += [theirs for theirs in self._named.values() if theirs not in headings]
        if missing:
            close = get_close_matches(missing[0], headings, 1)
            hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(headings)}"
            raise TraceError(
                f"{self._path}: there is no column {missing[0]!r}; {hint} `columns:` of the trace says which is which"
            )
        for heading in headings:
            close = get_close_matches(heading, known.values(), 1, cutoff=0.8)
            if heading not in known.values() and close and close[0] not in headings:
                raise TraceError(f"{self._path}: unknown column {heading!r}; did you mean {close[0]}?")
        return [(name, headings.index(theirs)) for name, theirs in known.items() if theirs in headings]


def _text(path: Path) -> Iterator[Sequence[Cell]]:
    """The headings, then the rows."""
    with (
        gzip.open(path, "rt", encoding="utf-8-sig", newline="")
        if path.suffix == ".gz"
        else path.open(encoding="utf-8-sig", newline="") as lines
    ):
        yield from ([cell.strip() for cell in row] for row in csv.reader(lines, strict=True) if row)


def _parquet(path: Path) -> Iterator[Sequence[Cell]]:
    """The headings, then the rows."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise TraceError(f"{path}: Parquet needs pyarrow: pip install 'headway[trace]'. CSV needs nothing") from None
    try:
        with parquet.ParquetFile(path) as file:
            yield [str(name) for name in file.schema_arrow.names]
            for batch in file.iter_batches():
                yield from map(list, zip(*(column.to_pylist() for column in batch.columns), strict=True))
    except ArrowException as error:
        raise TraceError(f"{path}: is no Parquet: {error}") from None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
