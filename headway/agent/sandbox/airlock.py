"""The last thing before a task: a small program that closes what bubblewrap cannot, and becomes the task.

bubblewrap hands on descriptors of its own, sets no limits and knows no Landlock; and for a moment its first process
still holds the machine's /proc, which a task could open through it. The airlock closes all descriptors but three,
limits how many there may be, and enters a Landlock domain: from there nothing outside can be looked into or signalled,
and nothing written but where the task may write. It has no choice to make and so no bug to have: it is a list of system
calls with fixed arguments. If one fails, the task does not begin.

It is put together here for lack of a compiler on a fresh machine; for x86-64 only, and elsewhere the node says so.
"""

from __future__ import annotations

import ctypes
import resource
import struct
from collections.abc import Callable
from typing import NamedTuple

from headway.agent.sandbox.view import ARTIFACTS, WORKSPACE

MACHINE = "x86_64"
OPEN_FILES_MAX = 4096
NOT_CLOSED = b"headway: the sandbox could not be closed\n"
NOT_EXECUTED = b"headway: the program could not be executed\n"
NOT_CLOSED_CODE, NOT_EXECUTED_CODE = 125, 126

_BASE = 0x400000
_HEADERS = 64 + 56
_WRITE, _OPENAT, _EXECVE, _EXIT_GROUP = 1, 257, 59, 231
_CLOSE_RANGE, _PRLIMIT = 436, 302
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ALL = 0xFFFFFFFF
_HERE = (1 << 64) - 100
_PATH_ONLY = 0o10000000
_VERSION = 1
LANDLOCK_LEAST = 2
"""The first one could not be told to let files be moved between directories."""

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_DEVICES = 1 << 6 | 1 << 11
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_SCOPES = 0b11
"""Abstract sockets and signals."""


class _Call(NamedTuple):
    """A system call; a word of bytes stands for its address."""

    number: int
    arguments: tuple[int | bytes, ...]


def landlock_version() -> int:
    """Which Landlock this kernel has; 0 for none."""
    return max(0, int(ctypes.CDLL(None).syscall(_CREATE_RULESET, 0, 0, _VERSION)))


def program(landlock: int, *, has_root: bool) -> bytes:
    """The airlock, to be started with the path of a program and its arguments, name first; for a task that may write
    in all of a root of its own, or one that sees the node's."""
    return _executable([*_tidied(), *(_domain(landlock, has_root=has_root) if landlock >= LANDLOCK_LEAST else ())])


def open_files_max() -> int:
    """How many files a task may have open: no more than the agent could."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return OPEN_FILES_MAX if most == resource.RLIM_INFINITY else min(most, OPEN_FILES_MAX)


def _tidied() -> list[_Call]:
    files = open_files_max()
    return [
        _Call(_CLOSE_RANGE, (3, _ALL, 0)),
        _Call(_PRLIMIT, (0, resource.RLIMIT_NOFILE, struct.pack("=QQ", files, files), 0)),
        _Call(_PRLIMIT, (0, resource.RLIMIT_CORE, struct.pack("=QQ", 0, 0), 0)),
    ]


def _domain(version: int, *, has_root: bool) -> list[_Call]:
    """Everything may be read, and written where the task may write; devices may be made nowhere. The ruleset becomes
    descriptor 3, each place 4: all others are closed."""
    handled = (1 << 13) - 1 | _REFER | (_TRUNCATE if version >= 3 else 0)
    attribute = struct.pack("=QQQ", handled, 0, _SCOPES)[: 24 if version >= 6 else 8]
    calls = [_Call(_CREATE_RULESET, (attribute, len(attribute), 0))]
    all_but_devices, use = handled & ~_DEVICES, handled & (_WRITE_FILE | _TRUNCATE)
    own = [WORKSPACE, ARTIFACTS, "/tmp", "/dev/shm"]
    rules = [("/", _READ), *((place, all_but_devices) for place in own), ("/dev", use), ("/proc", use)]
    for place, allowed in [("/", all_but_devices)] if has_root else rules:
        calls += [
            _Call(_OPENAT, (_HERE, place.encode() + b"\0", _PATH_ONLY, 0)),
            _Call(_ADD_RULE, (3, 1, struct.pack("=Qi", allowed, 4), 0)),
            _Call(_CLOSE_RANGE, (4, _ALL, 0)),
        ]
    return [*calls, _Call(_RESTRICT_SELF, (3, 0)), _Call(_CLOSE_RANGE, (3, _ALL, 0))]


# ── the machine's language ───────────────────────────────────────────────────────────────────────────────────────────

_REGISTERS = (b"\x48\xbf", b"\x48\xbe", b"\x48\xba", b"\x49\xba")
"""mov rdi, rsi, rdx, r10 with eight bytes."""
_SYSCALL = b"\x0f\x05"
_IF_NEGATIVE = b"\x48\x85\xc0\x0f\x88"
"""test rax, rax; js, by four bytes from there."""
_EXECUTE_ARGUMENTS = (
    b"\x48\x8b\x7c\x24\x10"  # mov rdi, [rsp+16]: the path
    b"\x48\x8d\x74\x24\x18"  # lea rsi, [rsp+24]: the arguments
    b"\x48\x8b\x04\x24"  # mov rax, [rsp]: how many
    b"\x48\x8d\x54\xc4\x10"  # lea rdx, [rsp+8*rax+16]: the environment behind them
    + b"\xb8" + struct.pack("=I", _EXECVE) + _SYSCALL
)  # fmt: skip


def _executable(calls: list[_Call]) -> bytes:
    """An ELF file of one segment: headers, code, data."""
    length = len(_code(calls, lambda _: 0, 0)[0])
    data, places = bytearray(), dict[bytes, int]()

    def address(word: bytes) -> int:
        if word not in places:
            data.extend(bytes(-len(data) % 8))
            places[word] = _BASE + _HEADERS + length + len(data)
            data.extend(word)
        return places[word]

    _, failure = _code(calls, address, 0)
    code, _ = _code(calls, address, failure)
    size = _HEADERS + len(code) + len(data)
    header = struct.pack(
        "=4s5B7xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 0, 0, 2, 62, 1, _BASE + _HEADERS, 64, 0, 0, 64, 56, 1, 0, 0, 0
    )
    segment = struct.pack("=IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 4096)
    return header + segment + code + bytes(data)


def _code(calls: list[_Call], address: Callable[[bytes], int], failure: int) -> tuple[bytes, int]:
    """The code, and where in it the end of a failed one begins; that has to be known for the jumps to it."""
    code = bytearray()
    for call in calls:
        code += _made(call, address) + _IF_NEGATIVE
        code += struct.pack("=i", failure - len(code) - 4)
    code += _EXECUTE_ARGUMENTS + _said(NOT_EXECUTED, NOT_EXECUTED_CODE, address)
    failed = len(code)
    return bytes(code + _said(NOT_CLOSED, NOT_CLOSED_CODE, address)), failed


def _said(text: bytes, code: int, address: Callable[[bytes], int]) -> bytes:
    return _made(_Call(_WRITE, (2, text, len(text))), address) + _made(_Call(_EXIT_GROUP, (code,)), address)


def _made(call: _Call, address: Callable[[bytes], int]) -> bytes:
    code = bytearray()
    for register, argument in zip(_REGISTERS, call.arguments, strict=False):
        value = address(argument) if isinstance(argument, bytes) else argument
        code += register + struct.pack("=Q", value)
    return bytes(code + b"\xb8" + struct.pack("=I", call.number) + _SYSCALL)
