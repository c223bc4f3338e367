"""What became of an attempt of a process, when everything of it is dead: its ending, in the end's own words."""

from __future__ import annotations

import resource
import signal

from headway.agent.runners.attempt import Attempt, ended
from headway.agent.runners.output import output
from headway.agent.runners.spawn import not_begun
from headway.agent.runners.verdict import out_of_memory, verdict, what_was_refused
from headway.agent.sandbox.cgroups import Usage
from headway.agent.sandbox.groups import summed
from headway.agent.sandbox.sandboxed import SCRIPT
from headway.agent.sandbox.slots import Gone, NotBegun
from headway.core.checkpoints import LEFT_EXIT
from headway.wire import Ending, Outcome

_LEASE_LOST = (Outcome.LOST, "lease_lost", "it was killed because the agent's lease had run out")
_SLOT_LOST = (Outcome.LOST, "slot_lost", "the warm slot it ran in died, and it did with it; see the agent's log")


def judged(
    attempt: Attempt,
    status: int,
    rusage: resource.struct_rusage,
    usage: Usage | None,
    *,
    starved: bool,
    has_lease: bool,
    asked: bool,
) -> Ending:
    """Of one that ran to this status, `asked` to leave or not; what it left in its directory says the rest."""
    outcome, code, message = verdict(status, attempt.stop, attempt.assignment.cap_ms)
    if attempt.words.checkpoint is not None and status == LEFT_EXIT and attempt.stop is None:
        outcome, code, message = Outcome.YIELDED, "checkpointed", "wrote a checkpoint and left"
    if code == "exit_nonzero" and (attempt.cell is not None or attempt.warm_user is not None):
        message += what_was_refused(attempt.log.so_far(), has_network=attempt.words.network)
    if asked and attempt.stop is None and outcome is Outcome.FAILED and (rule := attempt.words.checkpoint) is not None:
        message += f"; {rule.signal} asked it for a checkpoint: write one and exit with {LEFT_EXIT}"
    if starved and outcome is Outcome.FAILED:
        code, message = "oom", out_of_memory(attempt.assignment.needs)
    if attempt.excess and attempt.stop is None:
        outcome, code, message = Outcome.FAILED, "disk_exceeded", attempt.excess
    if code == "signalled" and status == -signal.SIGKILL and not has_lease:
        outcome, code, message = _LEASE_LOST
    result = None
    if outcome is Outcome.DONE:
        result, message = output(attempt.directory)
        if message:
            outcome, code = Outcome.FAILED, "output_invalid"
    return ended(attempt, outcome, code, message, status, summed(usage, rusage), result)


def of_slot(attempt: Attempt, word: NotBegun | Gone, *, starved: bool, has_lease: bool) -> Ending:
    """Of one that its warm slot could not start, or took along. Who starts it is in its control group for a moment: if
    it takes too much memory by then, the kernel may choose to kill that one."""
    if isinstance(word, Gone) and starved:
        return ended(attempt, Outcome.FAILED, "oom", out_of_memory(attempt.assignment.needs))
    if isinstance(word, Gone):
        return ended(attempt, *(_SLOT_LOST if has_lease else _LEASE_LOST))
    program = attempt.words.command[0] if attempt.words.command else SCRIPT
    wrong = not_begun(program, word.errno)
    return ended(attempt, wrong.outcome, "spawn_failed", wrong.message)
