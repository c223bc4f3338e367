"""The GPUs of a node: which are lent to an attempt, and how it is told.

The promise: none is lent twice at a time, and an attempt that was lent none is told that there is none. Programs heed
that by the variables of their libraries; a sandbox lets in the devices of those that were lent, and no others.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

VISIBLE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
"""What libraries of NVIDIA and AMD heed."""
_NVIDIA = re.compile(r"nvidia(\d+)")
_RENDER = re.compile(r"renderD(\d+)")
_RENDER_FIRST = 128
_NVIDIA_SHARED = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")


def detect(dev: Path = Path("/dev")) -> list[str]:
    """The ids of what is there, as its libraries number them: NVIDIA's where it has any, else render nodes."""
    for place, pattern, first in ((dev, _NVIDIA, 0), (dev / "dri", _RENDER, _RENDER_FIRST)):
        names = [path.name for path in place.iterdir()] if place.is_dir() else []
        found = sorted(int(match[1]) - first for name in names if (match := pattern.fullmatch(name)))
        if found:
            return [str(number) for number in found]
    return []


class Gpus:
    """The ids a node has, and who has them now. What came back first is lent first."""

    def __init__(self, ids: Sequence[str] = (), named: Mapping[str, Sequence[Path]] | None = None) -> None:
        assert len(set(ids)) == len(ids), "each GPU is there once"
        self._named = named or {}
        self._free = deque(ids)
        self._is_told = bool(ids)

    def take(self, count: int) -> list[str] | None:
        """So many ids that nobody has; None when there are not as many."""
        if len(self._free) < count:
            return None
        return [self._free.popleft() for _ in range(count)]

    def give(self, ids: list[str]) -> None:
        """Ids come back."""
        self._free.extend(ids)

    def devices(self, lent: Sequence[str]) -> list[Path]:
        """The device files of ids: those that were named, else those that are known by number."""
        named = [path for one in lent for path in self._named.get(one, ())]
        return named + devices([one for one in lent if one not in self._named])

    def variables(self, lent: Sequence[str]) -> dict[str, str]:
        """What an attempt is told. On a node without any, nothing: there is nothing to be kept off."""
        if not self._is_told:
            return {}
        ids = ",".join(lent)
        # An empty NVIDIA_VISIBLE_DEVICES means "all" to some versions of its container runtime.
        return {name: ids or ("void" if name.startswith("NVIDIA") else "") for name in VISIBLE} | {"HEADWAY_GPUS": ids}


def devices(lent: Sequence[str], dev: Path = Path("/dev")) -> list[Path]:
    """The device files of ids that `detect` would find; those named otherwise (a UUID) have none we could tell."""
    numbers = [int(one) for one in lent if one.isdecimal()]
    nvidia = [path for number in numbers if (path := dev / f"nvidia{number}").exists()]
    if nvidia:
        return nvidia + [path for name in _NVIDIA_SHARED if (path := dev / name).exists()]
    render = [path for number in numbers if (path := dev / "dri" / f"renderD{_RENDER_FIRST + number}").exists()]
    return render + ([dev / "kfd"] if render and (dev / "kfd").exists() else [])


def inside(path: Path) -> str:
    """Where a task finds a device file: where it is, or in /dev."""
    return str(path) if path.is_relative_to("/dev") else f"/dev/{path.name}"
