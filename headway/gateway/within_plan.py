"""Whether a task is one that its tenant's plan allows. How many of them, and when, is for the leader to see to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headway.core.quantity import amount_text
from headway.core.refusal import Refused
from headway.core.task import Admitted, Submission
from headway.store.accounts import Plan

Verdict = Admitted | list[Refused]


def bounds_tasks(plan: Plan) -> bool:
    """Whether there is any task that the plan would not allow."""
    return plan.tiers is not None or bool(plan.resource_max) or bool(plan.quota)


def all_within(plan: Plan, said: Sequence[Submission], verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts on tasks, with what the plan has against them; those of one size and tier are looked at once."""
    allowed: set[tuple[object, str]] = set()
    found: list[Verdict] = []
    for one, verdict in zip(said, verdicts, strict=True):
        if isinstance(verdict, Admitted):
            alike = verdict.needs, verdict.tier
            if alike not in allowed:
                verdict = within(plan, one, verdict)  # noqa: PLW2901
                if isinstance(verdict, Admitted):
                    allowed.add(alike)
        else:
            verdict = within(plan, one, verdict)  # noqa: PLW2901
        found.append(verdict)
    return found


def within(plan: Plan, said: Submission, verdict: Verdict) -> Verdict:
    """The verdict on a task, with what the plan has against it."""
    wrong = verdict if isinstance(verdict, list) else list(_too_much(plan, verdict))
    if plan.tiers is not None and said.tier not in plan.tiers:
        wrong = [one for one in wrong if one.path != "tier"]
        wrong.append(Refused("tier", f"plan {plan.name} has no tier {said.tier!r}; it has: {', '.join(plan.tiers)}"))
    return wrong or verdict


def permitted(plan: Plan, role: str, verdict: Verdict) -> Verdict:
    """The verdict on a task, with a refusal of what it may not do outside its tier's profile."""
    if isinstance(verdict, Admitted) and verdict.network and role != "admin" and not plan.network:
        who = f"an administrator may say so, or allow it: headway plan set {plan.name} --network"
        return [Refused("network", f"plan {plan.name} does not let tasks have a network; {who}")]
    if isinstance(verdict, list) or not verdict.is_loosened or role == "admin" or verdict.profile in plan.profiles:
        return verdict
    what = f"the profile of tier {verdict.tier} is stricter, and plan {plan.name} does not let tasks be"
    who = "an administrator may say so, or allow it: headway plan set"
    return [Refused("profile", f"{what} {verdict.profile}; {who} {plan.name} --profiles {verdict.profile}")]


def _too_much(plan: Plan, admitted: Admitted) -> Iterator[Refused]:
    """What the task asks for beyond what one task may; and what would wait for ever, for the plan never has so much."""
    for name, amount in admitted.needs:
        for bounds, allows in ((plan.resource_max or {}, "a task"), (plan.quota, "all its tasks together")):
            most = bounds.get(name)
            if most is not None and amount > most:
                asked, allowed = amount_text(name, amount), amount_text(name, most)
                yield Refused(
                    f"resources.{name}", f"it asks for {asked}; plan {plan.name} allows {allows} at most {allowed}"
                )
                break
