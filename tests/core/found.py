"""Sequences of happenings that once led to a wrong decision, each as short as it could be made."""

from __future__ import annotations

from collections.abc import Mapping

from headway.core.lifecycle import Lane
from tests.core.happenings import (
    Decree,
    Finish,
    Happening,
    Join,
    Leave,
    Round,
    Submit,
    Tidy,
    Wait,
)

FOUND: Mapping[str, list[Happening]] = {
    "a pool that grows gives urgent shares back": [
        Join(1, 3), Submit(13, tenant=3, lane=Lane.OFFPEAK, slack=3.0, many=20), Round(3),
        Join(4, 1), Submit(8, tenant=3, many=2), Round(),
    ],
    "a pool that loses its only gpu gives urgent shares back": [
        Join(1, 2), Join(3, 4), Join(4, 1), Submit(14, lane=Lane.OFFPEAK, slack=3.0, many=20),
        Submit(12, slack=0.5), Round(), Leave(1), Round(),
    ],
    "what pressing work took in a round counts in the same round against its tier": [
        Submit(3), Join(3, 2), Submit(0, many=20), Submit(3, slack=0.5, many=2), Round(),
    ],
    "a tenant that had its turn is not taken for the one who has had least": [
        Join(1, 2), Submit(0, tenant=2, many=20), Submit(5, slack=60.0, many=2), Round(),
    ],
    "an outdated entry does not hide who comes next": [
        Submit(11, tenant=3, many=20), Submit(0, many=20), Join(4, 1), Round(),
    ],
    "one tenant first in two groups does not hide the next tenant": [
        Join(1, 1), Submit(11, slack=60.0, many=3), Submit(7, slack=60.0, many=2), Submit(7, tenant=3, many=3),
        Round(),
    ],
    "shares that a new node made smaller are looked up before the next turn": [
        Join(1, 1), Submit(3, tenant=3), Round(), Submit(3, tenant=3, many=20), Join(4, 1), Submit(3, many=3),
        Round(),
    ],
    "a tier whose account was forgotten while it was idle has a new one": [
        Join(1, 1), Submit(13, many=3), Round(), Finish(3, 3), Tidy(), Submit(10), Submit(13, many=21), Round(),
    ],
    "who follows a short task onto a node that is kept is as short": [
        Join(1, 1), Submit(9, slack=3.0, many=3), Round(), Submit(11, slack=0.5, cap=100.0), Finish(17, 2), Wait(2.0),
        Submit(11, cap=100.0, many=2), Submit(11, slack=3.0, many=20), Round(1), Wait(0.3), Round(3), Round(),
    ],
    "what presses passes a node that is kept for what does not": [
        Join(3, 0), Submit(9, many=2), Submit(8, many=2), Round(), Finish(0), Round(), Submit(9, slack=3.0),
        Wait(300.0), Round(1), Finish(0), Round(),
    ],
    "who has used its urgent share up keeps no node from what presses": [
        Join(2, 1), Decree("promotion_margin_seconds", 300.0), Submit(4, tenant=2, slack=35.0, many=3), Round(3),
        Wait(61.0), Submit(11, slack=60.0, many=2), Submit(4, slack=0.5), Round(1), Round(),
    ],
    "who was kept out is let in when what the node is kept for presses no more": [
        Submit(10, slack=0.5, many=20), Submit(9, slack=60.0, many=2), Round(), Join(4, 0), Submit(13), Wait(300.0),
        Round(), Submit(6, tenant=2, slack=3.0, many=2), Finish(30, 3), Round(), Round(),
    ],
    "what fits only into the window of a node that is kept waits for room": [
        Join(1, 3), Submit(8), Submit(13, slack=3.0, many=20), Round(), Finish(12, 2), Round(), Wait(1.0), Round(),
        Finish(11, 2, again=True), Finish(3, 2, again=True), Round(),
    ],
}  # fmt: skip
