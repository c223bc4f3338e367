"""Warm slots: a program of its own, of which the agent starts one, that prepares sandboxes and runs tasks in them.

`python -I -S slot.py` as root, with a socket as its standard input. Each order on it makes one slot, of three:

    warden      this process. Forks a keeper for each order, and reaps.
    keeper      starts bubblewrap, goes into the namespaces it made, and renews what a task wrote to: a new tmpfs for
                /tmp or /dev/shm, another directory for the workspace. It never meets a task.
    launcher    forked by the keeper; raises on itself the walls that a task has (Landlock, seccomp, no new
                privileges), keeps four capabilities in the slot's own user namespace, and starts one task after the
                other by vfork and exec. It is outside the slot's process namespace: no task can name it.

The promise: a task finds the slot as if nobody had been there. After each the launcher looks for processes, System V
and POSIX queues and memory, and files. Files are thrown away with what they are on; of anything else that was left,
and of anything that cannot be known, the whole slot dies, and the agent makes another one. It imports nothing of ours.
"""

from __future__ import annotations

import array
import ctypes
import os
import resource  # os.wait4 needs it, and inside there is nothing to import it from
import select
import socket

NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000
MOST = NEWNS | NEWCGROUP | NEWUTS | NEWIPC | NEWUSER | NEWNET
NOSUID, NODEV, NOEXEC, REMOUNT, BIND, DETACH = 2, 4, 8, 32, 4096, 2
SET_PDEATHSIG, SET_DUMPABLE, SET_SECCOMP, CAPBSET_DROP, SET_SUBREAPER, SET_NO_NEW_PRIVS = 1, 4, 22, 24, 36, 38
SECCOMP_FILTER = 2
PIDFD_SEND_SIGNAL = 424
SIGKILL = 9
RESET = [13, 25, 2]
DAC_OVERRIDE, KILL, SETGID, SETUID = 1, 5, 6, 7
CAPABILITY_LAST = 63
CAPABILITY_VERSION = 0x20080522
LANDLOCK_CREATE, LANDLOCK_RESTRICT = 444, 446
LANDLOCK_DEVICES = 1 << 6 | 1 << 11
"""Making devices of characters and of blocks."""
LANDLOCK_SCOPED_ABI, LANDLOCK_SCOPES = 6, 1 | 2
"""Abstract sockets and signals reach no further than those who carry the same rules."""

HOLDER, INSIDE = 999, 1000
OPEN_FILES_MAX = 4096
PLACES, OWN, WORKSPACE, SCRIPT = b"/run/headway/places", b"/run/headway", b"/workspace", b"/run/headway/script"
ARTIFACTS = b"/run/headway/artifacts"
SHOWN = ((b"/work", WORKSPACE), (b"/artifacts", ARTIFACTS))
"""Of a workspace, the directories and where a task has them."""
TEMPORARY = (b"/tmp", b"/dev/shm")
SCRIPT_BYTES = b"16m"
UP = b"headway: up"
REAP_MS = 5_000
MESSAGE_BYTES = 256 * 1024
FDS_MAX = 32
FDS_END = 1 << 20
SOON_MS = 10
"""Of a task that ends sooner, the agent hears only its end."""
LOOKS = 20
LOOK_SECONDS = 0.002
"""How long what died with a task may take to be reaped by the slot's init."""

_libc = ctypes.CDLL(None, use_errno=True)


# ── the warden ──────────────────────────────────────────────────────────────────────────────────────────────────


def main() -> None:
    """Forks a keeper for each order, and reaps whatever is left to it, until the agent hangs up."""
    orders = socket.socket(fileno=0)
    orders.set_inheritable(False)
    _called("prctl", _libc.prctl(SET_SUBREAPER, 1, 0, 0, 0))
    _called("prctl", _libc.prctl(SET_DUMPABLE, 0, 0, 0, 0))
    os.setgroups([])
    os.closerange(3, FDS_END)
    poll = select.poll()
    poll.register(orders, select.POLLIN)
    while True:
        if poll.poll(REAP_MS):
            order, fds = _received(orders)
            if not order:
                return
            if os.fork() == 0:
                orders.close()
                _keep(order, fds)
            for each in fds:
                os.close(each)
        _reap()


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


# ── the keeper ──────────────────────────────────────────────────────────────────────────────────────────────────


def _keep(order: bytes, fds: list[int]) -> None:
    """One slot, from its making to its end. Never returns."""
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    runs = socket.socket(fileno=fds[0])
    try:
        first, users, tmp, shm, *words = order.split(b"\0")
        sizes = {b"/tmp": tmp, b"/dev/shm": shm}
        init, outer, _hold = bubblewrap(words, namespace(int(first), int(users)))
        enter(init)
        looks = Looks()
        places = prepare(sizes)
    except (OSError, ValueError) as error:
        runs.send(b"W" + str(error).encode())
        os._exit(1)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        try:
            _called("setns", _libc.setns(init, NEWPID))  # not us: what we start
            Launcher(runs, theirs, looks, fds[2:]).serve(fds[1], init)
        except (OSError, ValueError) as error:
            runs.send(b"W" + str(error).encode())
        finally:
            os._exit(1)
    theirs.close()
    runs.close()
    try:
        while select.select([ours, init, outer], [], [])[0] == [ours] and (wish := ours.recv(64)):
            renew(wish, sizes, places)
            ours.send(b".")
    finally:
        _libc.syscall(PIDFD_SEND_SIGNAL, init, SIGKILL, None, 0)  # and with it whatever a task left
        os._exit(0)


def namespace(first: int, users: int) -> int:
    """A descriptor of a new namespace of users: root, and the users that tasks will be. No further one fits into it."""
    ready, is_ready = os.pipe()
    wait, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        try:
            _called("unshare", _libc.unshare(NEWUSER))
            _write("/proc/sys/user/max_user_namespaces", "0")
            os.write(is_ready, b".")
            os.read(wait, 1)
        finally:
            os._exit(0)
    os.close(is_ready)
    try:
        if not os.read(ready, 1):
            raise OSError("no user namespace could be made")
        _write(f"/proc/{child}/setgroups", "deny")
        for kind in ("gid_map", "uid_map"):
            _write(f"/proc/{child}/{kind}", f"0 {first} 1\n{HOLDER} {first + 1} {users + 1}\n")
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for end in (ready, wait, go):
            os.close(end)
        os.waitpid(child, 0)


def bubblewrap(words: list[bytes], users: int) -> tuple[int, int, int]:
    """Descriptors: of the slot's init, of bubblewrap, and what has to stay open: init's only child is a shell that
    waits there."""
    heard, told = os.pipe()
    up, says_up = os.pipe()
    held, hold = os.pipe()
    more = f"--userns {users} --uid {HOLDER} --gid {HOLDER} --info-fd {told} --".encode().split()
    argv = [*words, *more, b"/bin/sh", b"-c", b"echo " + UP + b"; read line"]
    onto = [(os.POSIX_SPAWN_DUP2, source, target) for source, target in ((held, 0), (says_up, 1), (says_up, 2))]
    onto += [(os.POSIX_SPAWN_DUP2, each, each) for each in (users, told)]
    outer = os.posix_spawn(words[0], argv, os.environ, file_actions=onto, setsid=True)
    for each in (told, says_up, held, users):
        os.close(each)
    body = b""
    while more_of_it := os.read(heard, 4096):
        body += more_of_it
    said = b""
    while UP not in said:
        said += (last := os.read(up, 4096))
        if not last:
            raise OSError(f"bubblewrap could not make it: {said.decode(errors='replace').strip()}")
    os.close(heard)
    os.close(up)
    return os.pidfd_open(int(body.partition(b'"child-pid":')[2].split(b",")[0])), os.pidfd_open(outer), hold


def enter(init: int) -> None:
    """Goes where bubblewrap is, except among its processes."""
    _called("setns", _libc.setns(init, MOST))
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


def prepare(sizes: dict[bytes, bytes]) -> int:
    """Makes the slot ready for its first task. Returns the directory of workspaces, which is then covered."""
    places = os.open(PLACES, os.O_PATH | os.O_DIRECTORY)
    mount(b"tmpfs", OWN, b"tmpfs", NOSUID | NODEV, b"size=" + SCRIPT_BYTES + b",mode=755")
    os.mkdir(ARTIFACTS)
    mount(None, b"/proc", None, REMOUNT | NOSUID | NODEV | NOEXEC, b"hidepid=2")
    for path in sizes:
        renew(path, sizes, places)
    try:  # noqa: SIM105  a port that was in use is free at once, where that can be had
        _write("/proc/sys/net/ipv4/tcp_max_tw_buckets", "0")
    except OSError:
        pass
    return places


def renew(wish: bytes, sizes: dict[bytes, bytes], places: int) -> None:
    """Puts something new where a task has written: a path of `sizes`, or else the number of a workspace."""
    if wish in sizes:
        unmount(wish)
        mount(b"tmpfs", wish, b"tmpfs", NOSUID | NODEV, b"mode=1777,size=" + sizes[wish])
        return
    if not wish.isdigit():
        raise OSError(f"no such workspace: {wish!r}")
    os.fchdir(places)
    for name, path in SHOWN:
        unmount(path)
        mount(wish + name, path, None, BIND, None)
    os.chdir("/")


def unmount(path: bytes) -> None:
    """Everything that is mounted there."""
    while _libc.umount2(path, DETACH) == 0:
        pass


# ── the launcher ────────────────────────────────────────────────────────────────────────────────────────────────


class Looks:
    """What shows whether somebody was here. Made in the slot before its first task."""

    def __init__(self) -> None:
        self._files = [os.open(f"/proc/sysvipc/{kind}", os.O_RDONLY) for kind in ("shm", "sem", "msg")]
        self._files.append(os.open("/proc/1/task/1/children", os.O_RDONLY))
        mount(b"mqueue", OWN, b"mqueue", NOSUID | NODEV | NOEXEC, None)
        self._queues = os.open(OWN, os.O_RDONLY | os.O_DIRECTORY)
        _called("umount2", _libc.umount2(OWN, DETACH))
        self._first = self._now()

    def is_empty(self) -> bool:
        """Whether all processes, queues and shared memory of the last task are gone, or go just now."""
        for _ in range(LOOKS):
            if self._now() == self._first:
                return True
            select.select([], [], [], LOOK_SECONDS)
        return False

    def _now(self) -> list[object]:
        return [*(os.pread(file, 4096, 0) for file in self._files), os.listdir(self._queues)]


class Launcher:
    """Runs tasks, one at a time."""

    def __init__(self, runs: socket.socket, keeper: socket.socket, looks: Looks, home: list[int]) -> None:
        self._runs = runs
        self._keeper = keeper
        self._looks = looks
        self._home = home
        self._null = os.open("/dev/null", os.O_RDWR)
        self._fresh = {path: _sight(path) for path in TEMPORARY}
        self._place = b""
        self._script = b""

    def serve(self, walls: int, init: int) -> None:
        """Runs what it is told until nobody tells it any more or the slot is not what it was."""
        _called("prctl", _libc.prctl(SET_PDEATHSIG, SIGKILL, 0, 0, 0))
        raise_walls(_all_of(walls))
        self._runs.sendmsg([b"C"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [init]))])
        os.close(init)
        while True:
            order, fds = _received(self._runs)
            if not order:
                return
            if order.startswith(b"R"):
                self._run(order[1:].split(b"\0"), fds)

    def _run(self, words: list[bytes], fds: list[int]) -> None:
        user, place, script, count, *words = words
        argv, environ = words[: int(count)], dict(word.split(b"=", 1) for word in words[int(count) :])
        try:
            if place != self._place:
                self._wish(place)
                self._place = place
            if script:
                self._take(script, fds.pop(1))
            pid = self._start(argv, environ, INSIDE + int(user), fds[0], fds[1:])
        except OSError as error:
            self._runs.send(b"F%d" % (error.errno or 0))
            return
        finally:
            for each in fds:
                os.close(each)
        self._tidy(self._watch(pid))

    def _take(self, script: bytes, source: int) -> None:
        """Puts a script where tasks find it, unless it is there. Only we can write to it."""
        try:
            if script == self._script:
                return
            self._script = b""
            if os.path.exists(SCRIPT):
                os.unlink(SCRIPT)
            target = os.open(SCRIPT, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o555)
            try:
                while os.sendfile(target, source, None, 1 << 20):
                    pass
            finally:
                os.close(target)
            os.chmod(SCRIPT, 0o555)
            self._script = script
        finally:
            os.close(source)

    def _start(self, argv: list[bytes], environ: dict[bytes, bytes], user: int, output: int, group: list[int]) -> int:
        """Starts a task, in its control group and as its user. The kernel takes what we are until the program is there:
        the group, and as whom `resetids` leaves us behind: of three ids, we are root by two."""
        program = _found(argv[0], environ.get(b"PATH", b""))
        onto = [(os.POSIX_SPAWN_DUP2, source, target) for source, target in ((self._null, 0), (output, 1), (output, 2))]
        os.chdir(WORKSPACE)
        try:
            _join(group)
            os.setresgid(user, 0, 0)
            os.setresuid(user, 0, 0)
            return os.posix_spawn(
                program, argv, environ, file_actions=onto, setsid=True, resetids=True, setsigmask=[],
                setsigdef=RESET,
            )  # fmt: skip
        finally:
            os.setresuid(0, 0, 0)
            os.setresgid(0, 0, 0)
            _join(self._home)
            os.chdir("/")

    def _watch(self, pid: int) -> bytes:
        """Waits for its end, and passes on signals meanwhile."""
        pidfd = os.pidfd_open(pid)
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.register(self._runs, select.POLLIN)
        patience: int | None = SOON_MS
        while True:
            ready = [descriptor for descriptor, _ in poll.poll(patience)]
            if pidfd in ready:
                break
            if not ready:
                self._runs.send(b"S%d" % pid)
                patience = None
            elif not self._heed(pid):
                os._exit(0)  # the agent is gone
        os.close(pidfd)
        _, status, used = os.wait4(pid, 0)
        return b"E%d %b" % (status, _written(used))

    def _heed(self, pid: int) -> bool:
        order = self._runs.recv(64)
        if order.startswith(b"K"):
            try:  # noqa: SIM105
                os.killpg(pid, int(order[1:]))
            except OSError:
                pass
        return bool(order)

    def _tidy(self, told: bytes) -> None:
        """Tells how it ended, and makes the slot as it was; where that cannot be, ends it."""
        stale = [path for path in TEMPORARY if _sight(path) != self._fresh[path]]
        is_empty = self._looks.is_empty()
        self._runs.send(told + (b" 1" if is_empty and not stale else b" 0"))
        if not is_empty:
            os._exit(0)
        for path in stale:
            self._wish(path)
        if any(_sight(path) != self._fresh[path] for path in stale):
            os._exit(1)
        if stale:
            self._runs.send(b"C")

    def _wish(self, what: bytes) -> None:
        self._keeper.send(what)
        if self._keeper.recv(1) != b".":
            os._exit(1)


def raise_walls(program: bytes) -> None:
    """Everything that a task must not have or do, for us and whatever we start; four capabilities stay ours."""
    for capability in range(CAPABILITY_LAST + 1):
        _libc.prctl(CAPBSET_DROP, capability, 0, 0, 0)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    files = OPEN_FILES_MAX if most == resource.RLIM_INFINITY else min(most, OPEN_FILES_MAX)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    kept = 1 << DAC_OVERRIDE | 1 << KILL | 1 << SETGID | 1 << SETUID
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    _called("capset", _libc.capset(header, (ctypes.c_uint32 * 6)(kept, kept, 0, 0, 0, 0)))
    _called("prctl", _libc.prctl(SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    landlock()
    steps = ctypes.create_string_buffer(program, len(program))
    wanted = _Program(len(program) // 8, ctypes.cast(steps, ctypes.c_void_p))
    _called("seccomp", _libc.prctl(SET_SECCOMP, SECCOMP_FILTER, ctypes.byref(wanted), 0, 0))


def landlock() -> None:
    """Where the kernel has it: no devices are made, no mounts changed, and nobody outside is signalled or called."""
    abi = _libc.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)
    if abi < 1:
        return
    wanted = (ctypes.c_uint64 * 3)(LANDLOCK_DEVICES, 0, LANDLOCK_SCOPES)
    size = 24 if abi >= LANDLOCK_SCOPED_ABI else 8
    rules = _called("landlock", _libc.syscall(LANDLOCK_CREATE, wanted, ctypes.c_size_t(size), 0))
    _called("landlock", _libc.syscall(LANDLOCK_RESTRICT, rules, 0))
    os.close(rules)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))


def _found(program: bytes, path: bytes) -> bytes:
    if b"/" in program:
        return program
    for directory in path.split(b":"):
        candidate = directory + b"/" + program
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    raise FileNotFoundError(2, "not found")


def _join(group: list[int]) -> None:
    for each in group:
        os.write(each, b"0")


def _written(used: resource.struct_rusage) -> bytes:
    numbers = (used.ru_utime, used.ru_stime, used.ru_maxrss, used.ru_inblock, used.ru_oublock)
    return " ".join(map(str, numbers)).encode()


def _sight(path: bytes) -> tuple[object, ...]:
    """How a tmpfs looks from outside: what is in it, how much is free, and whose it is."""
    whole, top = os.statvfs(path), os.stat(path)
    return os.listdir(path), whole.f_bfree, whole.f_ffree, top.st_mode, top.st_uid


# ── what all of them use ────────────────────────────────────────────────────────────────────────────────────────


def mount(source: bytes | None, target: bytes, kind: bytes | None, flags: int, options: bytes | None) -> None:
    """mount(2)."""
    _called(f"mount {target.decode()}", _libc.mount(source, target, kind, ctypes.c_ulong(flags), options))


def _received(sock: socket.socket) -> tuple[bytes, list[int]]:
    """One message and the descriptors that came with it."""
    body, ancillary, _, _ = sock.recvmsg(MESSAGE_BYTES, socket.CMSG_SPACE(4 * FDS_MAX), socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(data)
    return body, list(fds)


def _called(what: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _all_of(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, size, 0)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


if __name__ == "__main__":
    main()
