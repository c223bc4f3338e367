"""What a node lends an attempt by number, ports and GPUs: nothing to two at a time, and all of it comes back."""

from __future__ import annotations

from headway.agent.gpus import Gpus
from headway.agent.ports import Ports
from headway.agent.runners.attempt import Attempt
from headway.core.ports import variables


class Lending:
    """The node's ports and GPUs."""

    def __init__(self, ports: Ports, gpus: Gpus) -> None:
        self._ports = ports
        self._gpus = gpus

    def take(self, attempt: Attempt) -> tuple[str, str] | None:
        """Lends an attempt what it asked for; code and message when that is not there."""
        needs = attempt.assignment.needs
        wanted = needs.get("ports", 0)
        ports = self._ports.take(wanted) if wanted else []
        if ports is None:
            why = f"not {wanted} ports of the node's range are free; give its agent another one: --ports LOW-HIGH"
            return "no_ports", why
        wanted = needs.get("gpu", 0)
        gpus = self._gpus.take(wanted) if wanted else []
        if gpus is None:
            self._ports.give(ports)
            return "no_gpu", f"not {wanted} GPUs of the node are free; its agent offers more than it was told ids for"
        attempt.ports, attempt.gpus, attempt.devices = ports, gpus, self._gpus.devices(gpus)
        return None

    def give(self, attempt: Attempt) -> None:
        """Takes back what an attempt holds, if it holds anything."""
        self._ports.give(attempt.ports)
        self._gpus.give(attempt.gpus)
        attempt.ports, attempt.gpus, attempt.devices = [], [], []

    def variables(self, attempt: Attempt) -> dict[str, str]:
        """What a process is told of what it was lent."""
        return variables(attempt.words.ports, attempt.ports) | self._gpus.variables(attempt.gpus)
