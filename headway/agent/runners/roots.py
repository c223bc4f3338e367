"""The images of attempts: got before they begin, held while they run, given back when everything of them is dead."""

from __future__ import annotations

from headway.agent.images.fetch import Unavailable
from headway.agent.images.store import Images
from headway.agent.images.unpack import BadImage
from headway.agent.runners.attempt import Attempt, ended, faulty
from headway.core.profiles import CONTAINER
from headway.wire import Ending, Outcome


class Roots:
    """Lends roots to attempts; on a node that runs no images nobody asks for one."""

    def __init__(self, images: Images | None, *, has_engine: bool = False) -> None:
        self._images = images
        self._has_engine = has_engine

    def is_there(self, attempt: Attempt) -> bool:
        """Whether it has its root, or needs none; if not, `get` it."""
        name = attempt.words.image
        if self._has_engine and attempt.assignment.profile == CONTAINER:
            return True  # the engine has its own
        if name is not None and attempt.root is None and self._images is not None:
            attempt.root = self._images.at_hand(name)
        return name is None or attempt.root is not None

    async def get(self, attempt: Attempt) -> Ending | None:
        """Gets its root, if it needs one; its ending if that cannot be had."""
        name = attempt.words.image
        if self.is_there(attempt) or name is None or self._images is None:
            return None
        try:
            attempt.root = await self._images.get(name)
        except BadImage as bad:
            return ended(attempt, Outcome.FAILED, "image_invalid", f"image {name} cannot be used: {bad}")
        except Unavailable as fault:
            if fault.is_final:
                return ended(attempt, Outcome.FAILED, "image_missing", f"image {name} cannot be had: {fault}")
            return ended(attempt, Outcome.LOST, "image_unavailable", f"image {name} cannot be had now: {fault}")
        except Exception as fault:  # noqa: BLE001  nobody else would end the attempt
            return faulty(attempt, fault)
        return None

    def give(self, attempt: Attempt) -> None:
        """Nothing of it runs in its root any more."""
        root, attempt.root = attempt.root, None
        if root is not None and self._images is not None:
            self._images.give(root)
