"""The system calls of a sandboxed task: an allow-list as a program of classic BPF, made once when the agent starts.

The promise: a call that is not listed, of another architecture or with arguments that reach outside does not happen.
Numbers are found by halving, so the kernel takes some eight steps to judge each, and it remembers those that are
allowed whatever their arguments.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator
from typing import NamedTuple

from headway.agent.sandbox import syscalls

_LOAD, _JUMP, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_ANY_BIT, _RETURN, _AND = 0x20, 0x05, 0x15, 0x35, 0x45, 0x06, 0x54
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Where the kernel shows them (struct seccomp_data); an argument has eight bytes, the low four first."""
_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_ALLOW = 0x7FFF0000
_X32_BIT = 0x40000000

NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET."""
_UNIX, _INET, _INET6 = 1, 2, 10
_STREAM, _DATAGRAM, _SEQUENCED = 1, 2, 5
_UDP = 17
"""No protocol above it: no SCTP, DCCP and others whose modules the kernel would load on demand."""
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
"""They put words into the mouth of whoever sits at the terminal."""
_DEVICE_BIT = 0x2000
"""In the kind of a file: a device, of characters (2) or blocks (6); also in the kind 0xA of links, which mknod makes
none of."""
_SAME_PERSONALITY = 0xFFFFFFFF
_PUNCH_HOLE = 0x3
"""FALLOC_FL_PUNCH_HOLE with KEEP_SIZE: the only mode that takes no space. The others would take a whole disk within
the blink of an eye, before anybody has measured it (see runners/disk.py)."""


class _Step(NamedTuple):
    """One instruction; jumps are counted from the next one."""

    code: int
    value: int
    then: int = 0
    otherwise: int = 0


def program(machine: str) -> bytes:
    """The filter for this machine's architecture (`os.uname().machine`)."""
    steps = [
        _Step(_LOAD, _ARCHITECTURE),
        _Step(_JUMP_EQUAL, _AUDIT[machine], 1, 0),
        _refusal(errno.ENOSYS),
        _Step(_LOAD, _NUMBER),
        _Step(_JUMP_GREATER_EQUAL, _X32_BIT, 0, 1),
        _refusal(errno.ENOSYS),
        *_decided(list(_ranges(_decisions(machine)))),
    ]
    return b"".join(struct.pack("=HBBI", step.code, step.then, step.otherwise, step.value) for step in steps)


def _decisions(machine: str) -> dict[int, tuple[_Step, ...]]:
    """What becomes of each number that is listed."""
    allow, refuse = (_allowance(),), (_refusal(errno.EPERM),)
    found = dict.fromkeys(syscalls.allowed(machine).values(), allow)
    found |= dict.fromkeys(syscalls.refused(machine).values(), refuse)
    found |= {number: _JUDGEMENTS[name] for name, number in syscalls.judged(machine).items()}
    return found


def _ranges(decisions: dict[int, tuple[_Step, ...]]) -> Iterator[tuple[int, tuple[_Step, ...]]]:
    """Where a range of numbers with the same fate begins, and its fate; without gaps, from 0 on."""
    last: tuple[_Step, ...] | None = None
    for number in range(max(decisions) + 2):
        fate = decisions.get(number, (_refusal(errno.ENOSYS),))
        if fate != last:
            yield number, fate
        last = fate


def _decided(ranges: list[tuple[int, tuple[_Step, ...]]]) -> list[_Step]:
    """Halves the ranges until one is left. A jump over instructions reaches 255 far, so the longer one is a JUMP."""
    if len(ranges) == 1:
        return list(ranges[0][1])
    middle = len(ranges) // 2
    below, above = _decided(ranges[:middle]), _decided(ranges[middle:])
    return [
        _Step(_JUMP_GREATER_EQUAL, ranges[middle][0], 0, 1),
        _Step(_JUMP, len(below)),
        *below,
        *above,
    ]


def _allowance() -> _Step:
    return _Step(_RETURN, _ALLOW)


def _refusal(error: int) -> _Step:
    return _Step(_RETURN, 0x00050000 | error)


def _argument(number: int) -> _Step:
    return _Step(_LOAD, _ARGUMENTS + 8 * number)


def _unless_any_bit(argument: int, bits: int, error: int) -> tuple[_Step, ...]:
    return (_argument(argument), _Step(_JUMP_ANY_BIT, bits, 0, 1), _refusal(error), _allowance())


def _one_of(values: tuple[int, ...], error: int) -> tuple[_Step, ...]:
    """Refuses what was loaded unless it is one of these."""
    tests = [_Step(_JUMP_EQUAL, value, len(values) - number, 0) for number, value in enumerate(values)]
    return (*tests, _refusal(error))


def _none_of(values: tuple[int, ...], error: int) -> tuple[_Step, ...]:
    """Refuses what was loaded if it is one of these."""
    others = [_Step(_JUMP_EQUAL, value, len(values) - 1 - number, 0) for number, value in enumerate(values[:-1])]
    return (*others, _Step(_JUMP_EQUAL, values[-1], 0, 1), _refusal(error), _allowance())


_KIND = (_argument(1), _Step(_AND, 0xF))
_JUDGEMENTS: dict[str, tuple[_Step, ...]] = {
    "clone": _unless_any_bit(0, NAMESPACES, errno.EPERM),
    "fallocate": (_argument(1), *_one_of((_PUNCH_HOLE,), errno.EOPNOTSUPP), _allowance()),
    "ioctl": (_argument(1), *_none_of((_TIOCSTI, _TIOCLINUX), errno.EPERM)),
    "mknod": _unless_any_bit(1, _DEVICE_BIT, errno.EPERM),
    "mknodat": _unless_any_bit(2, _DEVICE_BIT, errno.EPERM),
    "personality": (_argument(0), *_one_of((0, _SAME_PERSONALITY), errno.EPERM), _allowance()),
    "socket": (
        _argument(0),
        *_one_of((_UNIX, _INET, _INET6), errno.EAFNOSUPPORT),
        *_KIND,
        *_one_of((_STREAM, _DATAGRAM, _SEQUENCED), errno.EPERM),
        _argument(2),
        _Step(_JUMP_GREATER_EQUAL, _UDP + 1, 0, 1),
        _refusal(errno.EPROTONOSUPPORT),
        _allowance(),
    ),
    "socketpair": (_argument(0), *_one_of((_UNIX,), errno.EAFNOSUPPORT), _allowance()),
}
