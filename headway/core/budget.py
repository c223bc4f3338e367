"""How much of a tenant's work may go ahead of everybody else's, so that declaring everything urgent does not pay.

A tenant whose urgent tasks hold the share of the pool that its plan says is not refused: what more it has that presses
takes its fair turn, and goes ahead again when some of the share is given back.
"""

from __future__ import annotations

from headway.core.policy import Policy
from headway.core.queue import Line, LineKey
from headway.core.usage import Usage

_HAIR = 1e-9
ENDLESS = 1 << 30


class UrgentBudget:
    """The urgent share of every tenant, and the lines that wait for theirs."""

    def __init__(self, usage: Usage, policy: Policy) -> None:
        self.policy = policy
        self._usage = usage
        self._over: dict[int, set[LineKey]] = {}

    def is_used_up(self, tenant: int) -> bool:
        """Whether no more of the tenant goes ahead."""
        return self._usage.urgent_share(tenant) >= self.policy.plan(tenant).urgent_share - _HAIR

    def room(self, line: Line) -> int:
        """How many more of a line fit into the tenant's share; one more than that may begin it."""
        part = self._usage.part(line)
        left = self.policy.plan(line.key.tenant).urgent_share - self._usage.urgent_share(line.key.tenant)
        return ENDLESS if part <= 0 else max(int(left / part + _HAIR), 1)

    def set_aside(self, key: LineKey) -> None:
        """A line that presses waits for its tenant's share."""
        self._over.setdefault(key.tenant, set()).add(key)

    def restored(self, tenant: int) -> list[LineKey]:
        """The lines of a tenant that go ahead again, in order."""
        if tenant not in self._over or self.is_used_up(tenant):
            return []
        return sorted(self._over.pop(tenant))

    def all_restored(self) -> list[LineKey]:
        """The same of every tenant."""
        return [key for tenant in list(self._over) for key in self.restored(tenant)]
