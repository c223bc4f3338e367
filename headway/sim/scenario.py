"""What a scenario may say: nodes, tenants, their work, and chance. Words only; world.py makes a pool of them.

The structs are the format: every key of a scenario file is a field here, and there are no others.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from headway.core.constraints import Constraint
from headway.core.limits import Concurrency
from headway.core.terms import SaidRate

Duration = str | int | float
Amount = str | int | float
Cell = str | int | float | bool


class _Said(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A mapping of a scenario file."""


# ── how long tasks take ───────────────────────────────────────────────────────────────────────────────────────────────


class Fixed(_Said, tag_field="kind", tag="fixed", frozen=True, kw_only=True):
    """Always the same."""

    seconds: Duration


class Uniform(_Said, tag_field="kind", tag="uniform", frozen=True, kw_only=True):
    """Anything between two bounds."""

    least: Duration
    most: Duration


class Exponential(_Said, tag_field="kind", tag="exponential", frozen=True, kw_only=True):
    """Memoryless."""

    mean: Duration
    most: Duration = "7d"


class LogNormal(_Said, tag_field="kind", tag="lognormal", frozen=True, kw_only=True):
    """Most are near the median, some very far above it; sigma says how far."""

    median: Duration
    sigma: float
    least: Duration = 0
    most: Duration = "7d"


class Pareto(_Said, tag_field="kind", tag="pareto", frozen=True, kw_only=True):
    """Bounded Pareto: with an alpha below 1, a few tasks are most of the work."""

    least: Duration
    most: Duration
    alpha: float


class Part(_Said, frozen=True, kw_only=True):
    """A part of a mixture."""

    weight: float
    duration: Fixed | Uniform | Exponential | LogNormal | Pareto


class Mixture(_Said, tag_field="kind", tag="mixture", frozen=True, kw_only=True):
    """Several kinds of tasks under one name."""

    parts: list[Part]


Length = Fixed | Uniform | Exponential | LogNormal | Pareto | Mixture


class Overstated(_Said, frozen=True, kw_only=True):
    """A cap that people guessed: up to `times` the true duration, in whole minutes, and at least `least`."""

    times: float
    least: Duration = "1m"


# ── when they arrive ──────────────────────────────────────────────────────────────────────────────────────────────────


class _Within(_Said, frozen=True, kw_only=True):
    after: Duration = 0
    """Nothing arrives before, or from `until` on."""
    until: Duration | None = None


class Poisson(_Within, tag_field="kind", tag="poisson", frozen=True, kw_only=True):
    """Independent arrivals at a steady rate."""

    rate: str


class Diurnal(_Within, tag_field="kind", tag="diurnal", frozen=True, kw_only=True):
    """A rate that swings with the hour of the day; a simulation begins on a Monday at midnight."""

    rate: str
    """The mean of a day."""
    swing: float = 0.6
    """0 is steady; with 1 the trough is empty and the peak is twice the mean."""
    peak: Duration = "14h"
    """The hour of the highest rate."""
    weekend: float = 1.0
    """Saturdays and Sundays have this part of it."""


class Bursts(_Within, tag_field="kind", tag="bursts", frozen=True, kw_only=True):
    """Many at once, now and then."""

    every: Duration
    """On average; the gaps are exponential."""
    size: int
    """On average; sizes are geometric."""
    within: Duration = "1s"
    """How long one takes to arrive."""


class Storms(_Within, tag_field="kind", tag="storms", frozen=True, kw_only=True):
    """So many at :00, as cron makes them."""

    every: Duration = "1h"
    size: int
    within: Duration = "1s"


class Once(_Within, tag_field="kind", tag="once", frozen=True, kw_only=True):
    """So many at one moment: a backlog, a disaster."""

    at: Duration = 0
    size: int
    within: Duration = 0


Arrival = Poisson | Diurnal | Bursts | Storms | Once


# ── who and where ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Work(_Said, frozen=True, kw_only=True):
    """One kind of task that a tenant submits, in the words of a submission."""

    name: str
    arrive: Arrival
    duration: Length
    tier: str | None = None
    """Default: the tenant's."""
    execution_cap: Duration | Overstated | None = None
    """Default: the tier's."""
    delay_tolerance: Duration = "5m"
    off_peak: Literal["allow", "require", "never"] = "allow"
    periodic: bool = False
    """Whether a schedule creates them."""
    resources: dict[str, Amount] = {}
    """In place of the tier's, resource by resource."""
    constraints: tuple[Constraint, ...] = ()
    preferred: tuple[Constraint, ...] = ()
    spread: str | None = None
    exclusive: bool = False
    concurrency: tuple[Concurrency, ...] = ()
    rates: tuple[SaidRate, ...] = ()
    preemptible: bool = False
    checkpoint_every: Duration | None = None
    """How often it saves its work by itself, so that no more is lost with a node; None: never."""


class Tenants(_Said, frozen=True, kw_only=True):
    """A tenant, or `count` of them that are alike."""

    name: str
    count: int = 1
    tier: str = "basic"
    urgent_share: float = 0.25
    quota: dict[str, Amount] = {}
    work: list[Work] = []


class TierSaid(_Said, frozen=True, kw_only=True):
    """A tier: what its tasks need unless they say otherwise, and what it weighs."""

    weight: float = 1.0
    resources: dict[str, Amount]
    execution_cap: Duration = "1h"


class Failures(_Said, frozen=True, kw_only=True):
    """How often a node dies, with all it runs, and until when it is back. Both are exponential."""

    mean_time_between: Duration
    repair: Duration = "30m"


class NodeGroup(_Said, frozen=True, kw_only=True):
    """So many nodes that are alike."""

    count: int
    name: str = "node"
    resources: dict[str, Amount]
    labels: dict[str, str] = {}
    failures: Failures | None = None


class PolicySaid(_Said, frozen=True, kw_only=True):
    """What operators decide of a pool (`headway pool set`), and the feedback; the defaults are the product's."""

    peak_line: float | None = None
    peak_hysteresis: float | None = None
    promotion_margin: Duration | None = None
    half_life: Duration | None = None
    history_weight: float | None = None
    reserve_after: Duration | None = None
    quanta: list[Duration] | None = None
    least_run: Duration | None = None
    preempt_after: Duration | None = None
    preempt_patience: Duration | None = None
    preemptions_per_task: int | None = None
    preemptions_per_minute: float | None = None


class Trace(_Said, frozen=True, kw_only=True):
    """Tasks from a file, beside or in place of what tenants are said to submit."""

    file: str
    """CSV (`.gz` too), or Parquet; relative to the scenario."""
    columns: dict[str, str] = {}
    """What a column is called there, where it is called otherwise than here."""
    defaults: dict[str, Cell] = {}
    """What no column says, or an empty cell leaves open: by column."""


class Scenario(_Said, frozen=True, kw_only=True):
    """A pool and its life for a while."""

    version: Literal[1] = 1
    name: str
    about: str = ""
    horizon: Duration
    """How long work arrives; the simulation goes on until all of it has started."""
    seed: int = 1
    round: Duration = "10ms"
    """How far apart rounds of decisions are at least. A longer one is simulated faster."""
    nodes: list[NodeGroup]
    failures: Failures | None = None
    policy: PolicySaid = PolicySaid()
    tiers: dict[str, TierSaid] = {}
    tenants: list[Tenants] = []
    trace: Trace | None = None
