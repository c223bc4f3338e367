"""What a client may say about a task, and what is kept of it.

`Submission` is the manifest of one task as JSON. `admit` turns it into a `Spec` (what is stored and what a runner
reads) plus the few facts the scheduler works with, or into the list of everything that is wrong. Nothing here reads a
clock or a database: tiers and the hour come in.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Literal

import msgspec

from headway.core.checkpoints import CapWarning, CheckpointRule, wrong_rules
from headway.core.constraints import Constraint
from headway.core.images import reference
from headway.core.lifecycle import Lane
from headway.core.limits import Concurrency, Rate
from headway.core.ports import names_of, ports_wanted
from headway.core.profiles import CONTAINER, HOSTILE, TRUSTED, Profile, is_looser
from headway.core.quantity import counted, duration_ms, size_bytes
from headway.core.refusal import Refused
from headway.core.terms import NONE, SaidRate, Terms, checked, rates_of
from headway.core.workdir import wrong_workdir

Duration = str | int | float
Kind = Literal["command", "script", "function"]
OffPeak = Literal["allow", "require", "never"]

NAME_CHARS_MAX = 200
TEXT_CHARS_MAX = 128 * 1024
ITEMS_MAX = 4096
TAGS_MAX = 32
RESOURCES_MAX = 32
FUNCTION_CHARS_MAX = 1000
ATTEMPTS_MAX = 100
CAP_GRACE_MS_MAX = 10 * 60_000
URGENT_TOLERANCE_MS = 1000
"""A task that tolerates no more than this is urgent."""
OFF_PEAK_TOLERANCE_MS = 4 * 3_600_000
"""A task that tolerates as much waits for off-peak hours, unless it says never."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@ +-]*")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_<][\w.<>]*")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_RESOURCE = re.compile(r"[a-z][a-z0-9_.-]{0,62}")
_COUNTED = frozenset({"gpu", "iops"})


class RetryRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """How often a failed attempt is tried again, and how long it waits in between."""

    max_attempts: int = 1
    backoff: Literal["exponential", "fixed"] = "exponential"
    initial: Duration = "1s"
    factor: float = 2.0
    max: Duration = "5m"
    jitter: Literal["full", "none"] = "full"
    never_on_exit: list[int] = []


class Submission(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `POST /v1/tasks`: exactly one of command, script, function, and how it wants to be run."""

    name: str | None = None
    command: list[str] | None = None
    script: str | None = None
    script_path: str | None = None
    image: str | None = None
    function: str | None = None
    bundle: str | None = None
    workdir: str | None = None
    args: list[object] = []
    kwargs: dict[str, object] = {}
    env: dict[str, str] = {}
    tier: str = "basic"
    resources: dict[str, str | int | float | list[str]] = {}
    delay_tolerance: Duration = "5m"
    execution_cap: Duration | None = None
    cap_grace: Duration = "5s"
    eligible_at: datetime | None = None
    retry: RetryRule | None = None
    tags: dict[str, str] = {}
    off_peak: OffPeak = "allow"
    constraints: tuple[Constraint, ...] = ()
    preferred: tuple[Constraint, ...] = ()
    spread: str | None = None
    exclusive: bool = False
    concurrency: tuple[Concurrency, ...] = ()
    rates: tuple[SaidRate, ...] = ()
    profile: Profile | None = None
    preemptible: bool = False
    cap_warning: CapWarning | None = None
    checkpoint: CheckpointRule | None = None
    network: bool = False
    tmp: str | int | None = None
    fresh: bool = False


class Spec(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part of a submission that is stored as JSON and read by a runner."""

    command: list[str] | None = None
    script: str | None = None
    """The digest of the uploaded text."""
    function: str | None = None
    args: list[object] = []
    kwargs: dict[str, object] = {}
    env: dict[str, str] = {}
    retry: RetryRule | None = None
    tags: dict[str, str] = {}
    ports: list[str] = []
    """What the ports it asked for are called; one that only counted them has no names."""
    bundle: str | None = None
    """The digest of the archive that is unpacked into its workspace."""
    workdir: str | None = None
    """The directory of the workspace in which it starts."""
    image: str | None = None
    """The container image it runs in."""
    cap_warning: CapWarning | None = None
    checkpoint: CheckpointRule | None = None
    network: bool = False
    """Whether its sandbox has the node's network."""
    tmp: int | None = None
    """How large its /tmp is, in bytes, if it said so."""
    fresh: bool = False
    """Whether its sandbox has to be one in which nothing ever ran."""


class Tier(msgspec.Struct, frozen=True):
    """A named size: the resources it stands for and its execution caps."""

    name: str
    needs: dict[str, int]
    default_cap_ms: int
    max_cap_ms: int
    profile: Profile = TRUSTED


class Admitted(msgspec.Struct, frozen=True, gc=False):
    """A submission that is in order, in the scheduler's terms."""

    name: str
    kind: Kind
    spec: str
    tier: str
    needs: tuple[tuple[str, int], ...]
    delay_tolerance_ms: int
    execution_cap_ms: int
    cap_grace_ms: int
    max_attempts: int
    eligible_at: datetime | None
    script: str | None
    script_path: str | None
    bundle: str | None
    function: str | None
    lane: Lane
    terms: Terms
    profile: Profile
    """How closed in a process is to run; a function runs in its worker."""
    is_loosened: bool
    """Whether it asks for less than its tier's profile."""
    network: bool
    """Whether it asks for a network inside its sandbox."""


_encode = msgspec.json.Encoder().encode


def admit(said: Submission, tiers: dict[str, Tier]) -> Admitted | list[Refused]:
    """The task a submission asks for, or everything that is wrong with it."""
    tier = tiers.get(said.tier)
    rates = rates_of(said.rates) if said.rates else ()
    terms = _terms(said, () if isinstance(rates, list) else rates)
    wrong = _wrong_shape(said)
    if terms is not NONE:
        terms, wrong_terms = checked(terms)
        wrong += wrong_terms
    if said.cap_warning is not None or said.checkpoint is not None:
        wrong += wrong_rules(said.cap_warning, said.checkpoint, is_function=said.function is not None)
    if isinstance(rates, list):
        wrong += rates
    if tier is not None and said.image is None and said.function is None:
        wrong += _wrong_without_image(said, tier)
    if tier is None:
        wrong.append(Refused("tier", f"there is no tier {said.tier!r}; there are: {', '.join(sorted(tiers))}"))
        return wrong
    tolerance = duration_ms(said.delay_tolerance, "delay_tolerance")
    cap = tier.default_cap_ms if said.execution_cap is None else cap_of(said.execution_cap, tier)
    grace = duration_ms(said.cap_grace, "cap_grace")
    needs = _needs(said, tier)
    wrong += [found for found in (tolerance, cap, grace) if isinstance(found, Refused)]
    if isinstance(grace, int) and grace > CAP_GRACE_MS_MAX:
        wrong.append(Refused("cap_grace", "must not exceed 10m"))
    if isinstance(needs, list):
        wrong += needs
    elif said.tmp is not None or said.network:
        wrong += _wrong_walls(said, tier, dict(needs))
    if wrong:
        return wrong
    assert isinstance(tolerance, int)
    assert isinstance(cap, int)
    assert isinstance(grace, int)
    assert isinstance(needs, tuple)
    return _admitted(said, tier, tolerance, cap, grace, needs, terms)


def _admitted(
    said: Submission, tier: Tier, tolerance: int, cap: int, grace: int, needs: tuple[tuple[str, int], ...], terms: Terms
) -> Admitted:
    kind: Kind = "function" if said.function is not None else "script" if said.script is not None else "command"
    ports = names_of(said.resources["ports"]) if "ports" in said.resources else []
    tmp = None if said.tmp is None else size_bytes(said.tmp, "tmp")
    assert not isinstance(tmp, Refused)
    spec = Spec(
        said.command,
        said.script,
        said.function,
        said.args,
        said.kwargs,
        said.env,
        said.retry,
        said.tags,
        ports,
        said.bundle,
        said.workdir,
        said.image,
        said.cap_warning,
        said.checkpoint,
        said.network,
        tmp,
        said.fresh,
    )
    profile = TRUSTED if kind == "function" else _profile(said, tier)
    return Admitted(
        name=said.name if said.name is not None else _default_name(said),
        kind=kind,
        spec=_encode(spec).decode(),
        tier=said.tier,
        needs=needs,
        delay_tolerance_ms=tolerance,
        execution_cap_ms=cap,
        cap_grace_ms=grace,
        max_attempts=said.retry.max_attempts if said.retry else 1,
        eligible_at=None if said.eligible_at is None else said.eligible_at.astimezone(UTC),
        script=said.script,
        script_path=said.script_path,
        bundle=said.bundle,
        function=said.function,
        lane=lane_of(said.off_peak, tolerance),
        terms=terms,
        profile=profile,
        is_loosened=kind != "function" and is_looser(profile, tier.profile),
        network=said.network and profile != TRUSTED,
    )


def _wrong_walls(said: Submission, tier: Tier, needs: dict[str, int]) -> list[Refused]:
    """What it asks of its sandbox and cannot have."""
    wrong: list[Refused] = []
    if said.function is not None:
        return [Refused("network" if said.network else "tmp", "a function runs in its worker, and not in a sandbox")]
    if _profile(said, tier) == HOSTILE:
        return [Refused("network" if said.network else "tmp", "profile hostile has neither network nor another /tmp")]
    if said.tmp is not None:
        tmp, memory = size_bytes(said.tmp, "tmp"), needs.get("memory")
        if isinstance(tmp, Refused):
            wrong.append(tmp)
        elif tmp < 1 or (memory is not None and tmp > memory):
            wrong.append(Refused("tmp", "is in the task's memory: at least 1 byte, and no more than its memory"))
    return wrong


def _profile(said: Submission, tier: Tier) -> Profile:
    """An image runs as a container, unless it has to be shut in more."""
    profile = said.profile or tier.profile
    return profile if said.image is None or profile == HOSTILE else CONTAINER


def lane_of(off_peak: OffPeak, tolerance_ms: int) -> Lane:
    """In which lane a task waits."""
    if tolerance_ms <= URGENT_TOLERANCE_MS:
        return Lane.URGENT
    patient = off_peak == "allow" and tolerance_ms >= OFF_PEAK_TOLERANCE_MS
    return Lane.OFFPEAK if patient or off_peak == "require" else Lane.NORMAL


def _terms(said: Submission, rates: tuple[Rate, ...]) -> Terms:
    terms = Terms(
        said.constraints, said.preferred, said.spread, said.exclusive, said.concurrency, rates, said.preemptible,
        said.checkpoint is not None,
    )  # fmt: skip
    return NONE if terms == NONE else terms


def _default_name(said: Submission) -> str:
    if said.function is not None:
        return said.function[-NAME_CHARS_MAX:]
    if said.script is not None:
        return (said.script_path or "script").rsplit("/", 1)[-1][:NAME_CHARS_MAX]
    if said.image is not None:
        return re.split("[:@]", said.image.rsplit("/", 1)[-1])[0][:NAME_CHARS_MAX]
    assert said.command
    return said.command[0].rsplit("/", 1)[-1][:NAME_CHARS_MAX] or "command"


def _wrong_shape(said: Submission) -> list[Refused]:
    """What is wrong before tiers and sizes are looked at. The common case costs a handful of comparisons."""
    wrong: list[Refused] = []
    if (said.command is not None) + (said.script is not None) + (said.function is not None) != 1 and not (
        said.image is not None and said.command is said.script is said.function is None
    ):
        wrong.append(Refused("command", "expected exactly one of command, script, function"))
    if said.image is not None:
        wrong += _wrong_image(said)
    if said.name is not None and (len(said.name) > NAME_CHARS_MAX or not _NAME.fullmatch(said.name)):
        wrong.append(Refused("name", f"expected 1 to {NAME_CHARS_MAX} letters, digits or any of ._:/@+- and spaces"))
    if said.function is not None and (len(said.function) > FUNCTION_CHARS_MAX or not _is_function(said.function)):
        wrong.append(Refused("function", 'expected "package.module:function"'))
    if said.function is not None and said.profile is not None:
        wrong.append(Refused("profile", "a function runs in its worker, with the rights of whoever started that"))
    if said.function is not None and (said.bundle is not None or said.workdir is not None):
        wrong.append(Refused("bundle" if said.bundle else "workdir", "a function runs where its worker was started"))
    if said.function is not None and said.fresh:
        wrong.append(Refused("fresh", "a function runs in its worker, which serves one after the other"))
    if said.function is None and said.kwargs:
        wrong.append(Refused("kwargs", "only a function takes kwargs"))
    if said.command is not None or said.script is not None:
        wrong += _wrong_process(said)
    if said.env:
        wrong += _wrong_env(said.env)
    if said.tags:
        wrong += _wrong_tags(said.tags)
    if said.retry is not None:
        wrong += _wrong_retry(said.retry)
    if said.eligible_at is not None and not _is_hour(said.eligible_at):
        wrong.append(Refused("eligible_at", "expected a time with a zone, such as 2026-11-18T20:00:00Z"))
    if said.script_path is not None and (said.script is None or len(said.script_path) > TEXT_CHARS_MAX):
        wrong.append(Refused("script_path", "goes with a script, and must not exceed 128 KiB"))
    return wrong


def _is_hour(said: datetime) -> bool:
    """Whether it has a zone, and a year there is also in UTC."""
    try:
        said.astimezone(UTC)
    except OverflowError:
        return False
    return said.tzinfo is not None


@lru_cache(maxsize=4096)
def _is_function(name: str) -> bool:
    return _FUNCTION.fullmatch(name) is not None


def _wrong_process(said: Submission) -> list[Refused]:
    wrong: list[Refused] = []
    if said.command is not None and (not said.command or not said.command[0]):
        wrong.append(Refused("command", 'expected a program and its arguments, such as ["echo", "hello"]'))
    if said.command is not None and said.args:
        wrong.append(Refused("args", "a command carries its arguments itself"))
    if said.script is not None and not _DIGEST.fullmatch(said.script):
        wrong.append(
            Refused("script", "expected the digest (sha256:…) that POST /v1/scripts answered to the uploaded text")
        )
    if said.bundle is not None and not _DIGEST.fullmatch(said.bundle):
        wrong.append(Refused("bundle", "expected the digest (sha256:…) of an archive uploaded to /v1/blobs"))
    if said.workdir is not None and (why := wrong_workdir(said.workdir)):
        wrong.append(Refused("workdir", why))
    words = [*(said.command or []), *said.args]
    if len(words) > ITEMS_MAX:
        wrong.append(Refused("command" if said.command else "args", f"must not exceed {ITEMS_MAX} words"))
    if not all(isinstance(word, str) and len(word) <= TEXT_CHARS_MAX for word in words):
        wrong.append(Refused("command" if said.command else "args", "expected texts of at most 128 KiB each"))
    return wrong


def _wrong_image(said: Submission) -> list[Refused]:
    assert said.image is not None
    if said.function is not None:
        return [Refused("image", "a function runs in a worker of its app, not in an image")]
    found = reference(said.image)
    return [found] if isinstance(found, Refused) else []


def _wrong_without_image(said: Submission, tier: Tier) -> list[Refused]:
    if (said.profile or tier.profile) != CONTAINER:
        return []
    who = "the profile container" if said.profile else f"tier {tier.name}, whose profile is container,"
    return [Refused("image", f"{who} runs images: name one, such as busybox:1.36")]


def _wrong_env(env: dict[str, str]) -> list[Refused]:
    if len(env) > ITEMS_MAX:
        return [Refused("env", f"must not exceed {ITEMS_MAX} variables")]
    wrong = [
        Refused(f"env.{name}", "expected a name of letters, digits and _, not starting with a digit")
        for name in env
        if not _ENV_NAME.fullmatch(name)
    ]
    wrong += [
        Refused(f"env.{name}", "names starting with HEADWAY_ are set by Headway")
        for name in env
        if name[:8] == "HEADWAY_"
    ]
    wrong += [Refused(f"env.{k}", "must not exceed 128 KiB") for k, v in env.items() if len(v) > TEXT_CHARS_MAX]
    return wrong


def _wrong_tags(tags: dict[str, str]) -> list[Refused]:
    if len(tags) > TAGS_MAX:
        return [Refused("tags", f"must not exceed {TAGS_MAX} tags")]
    return [
        Refused(f"tags.{name}", f"name and value must have 1 to {NAME_CHARS_MAX} characters")
        for name, value in tags.items()
        if not 0 < len(name) <= NAME_CHARS_MAX or len(value) > NAME_CHARS_MAX
    ]


def _wrong_retry(rule: RetryRule) -> list[Refused]:
    wrong: list[Refused] = []
    if not 1 <= rule.max_attempts <= ATTEMPTS_MAX:
        wrong.append(Refused("retry.max_attempts", f"must be from 1 to {ATTEMPTS_MAX}"))
    if not 1.0 <= rule.factor <= 100.0:
        wrong.append(Refused("retry.factor", "must be from 1 to 100"))
    if len(rule.never_on_exit) > 256 or not all(0 <= code <= 255 for code in rule.never_on_exit):
        wrong.append(Refused("retry.never_on_exit", "expected exit codes from 0 to 255"))
    checked = (duration_ms(rule.initial, "retry.initial"), duration_ms(rule.max, "retry.max"))
    return wrong + [found for found in checked if isinstance(found, Refused)]


def cap_of(said: Duration, tier: Tier) -> int | Refused:
    """An execution cap within its tier's longest."""
    cap = duration_ms(said, "execution_cap", least_ms=1)
    if isinstance(cap, int) and cap > tier.max_cap_ms:
        return Refused("execution_cap", f"tier {tier.name} allows at most {tier.max_cap_ms / 1000:g}s")
    return cap


_FUNCTION_NEEDS = (("workers", 1),)


def _needs(said: Submission, tier: Tier) -> tuple[tuple[str, int], ...] | list[Refused]:
    if said.function is not None:
        if said.resources:
            return [Refused("resources", "a function runs in a worker slot; size its workers instead")]
        return _FUNCTION_NEEDS
    if not said.resources:
        return tuple(tier.needs.items())
    if len(said.resources) > RESOURCES_MAX:
        return [Refused("resources", f"must not exceed {RESOURCES_MAX} names")]
    needs = dict(tier.needs)
    wrong: list[Refused] = []
    for name, value in said.resources.items():
        found = _amount(name, value)
        if isinstance(found, Refused):
            wrong.append(found)
        else:
            needs[name] = found
    return wrong or tuple(sorted((name, needed) for name, needed in needs.items() if needed))


def _amount(name: str, value: str | int | float | list[str]) -> int | Refused:
    path = f"resources.{name}"
    if not _RESOURCE.fullmatch(name) or name == "workers":
        return Refused(path, "there is no such resource")
    if name == "ports":
        return ports_wanted(value, path)
    return counted(name, value, path)
