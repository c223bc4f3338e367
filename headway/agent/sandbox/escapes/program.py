"""What runs inside: `python3 -I -S -c PROGRAM NAME FACTS` tries one attack, says what came of it, and exits with 0 when
the walls held, with 1 when they did not. It imports nothing but the standard library, and runs on Python 3.9.

FACTS is JSON: what whoever attacks a machine could know or guess of it, and what it must not get at.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import platform
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

Facts = dict[str, Any]
Attack = Callable[[Facts], "str | None"]

LIBC = ctypes.CDLL(None, use_errno=True)
CALLS: dict[str, int] = {}
"""The numbers of system calls here; they come with the facts."""
NEWUSER = 0x10000000
NAMESPACES = {"user": NEWUSER, "mnt": 0x20000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x08000000, "uts": 1 << 26}


def call(name: str, *arguments: Any) -> int:
    """A system call by name; minus the error when it failed."""
    found = LIBC.syscall(CALLS[name], *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments))
    return -ctypes.get_errno() if found == -1 else int(found)


def refused(name: str, *arguments: Any) -> str | None:
    """The call must not succeed, nor get as far as to complain of its arguments."""
    found = call(name, *arguments)
    if found in (-errno.EPERM, -errno.ENOSYS, -errno.EACCES):
        return None
    return f"{name} answered {errno.errorcode.get(-found, found) if found < 0 else found}"


def all_refused(*calls: tuple[Any, ...]) -> str | None:
    """None of the calls may succeed."""
    return next((why for why in (refused(*one) for one in calls) if why), None)


def unreadable(*paths: str) -> str | None:
    """None of the files may be opened."""
    for path in paths:
        try:
            with open(path, "rb") as file:
                file.read(1)
        except OSError:
            continue
        return f"{path} was read"
    return None


def unwritable(*paths: str) -> str | None:
    """None of the files may be written or made."""
    for path in paths:
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
        except OSError:
            continue
        return f"{path} was opened for writing"
    return None


def no_socket(family: int, kind: int, protocol: int = 0) -> str | None:
    try:
        socket.socket(family, kind, protocol).close()
    except OSError:
        return None
    return f"a socket of family {family}, kind {kind} was made"


def unreachable(family: int, address: Any) -> str | None:
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.settimeout(0.5)
        try:
            one.connect(address)
        except OSError:
            return None
    return f"{address!r} was reached"


def contains(path: str, secret: str) -> bool:
    try:
        with open(path, "rb") as file:
            return secret.encode() in file.read()
    except OSError:
        return False


def processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def environment_of_the_agent(facts: Facts) -> str | None:
    for pid in {*processes(), facts["agent"]}:
        if contains(f"/proc/{pid}/environ", facts["canary"]):
            return f"it is in that of process {pid}"
    return None


def environment_of_the_first_process(facts: Facts) -> str | None:
    try:
        with open("/proc/1/environ", "rb") as file:
            names = [pair.split(b"=")[0].decode() for pair in file.read().split(b"\0") if pair]
    except OSError:
        return None
    known = {"HEADWAY_AGENT", "HEADWAY_TASK_ID", "HEADWAY_ATTEMPT", "PWD"}
    return f"it has {sorted(set(names) - known)}" if set(names) - known else None


def inherited_descriptors(_: Facts) -> str | None:
    """Besides the three that every program has, only the one that the list is read with."""
    left = [name for name in os.listdir("/proc/self/fd") if int(name) > 3]
    return "open: {}".format([(n, os.readlink("/proc/self/fd/" + n)) for n in left]) if left else None


def descriptors_of_the_first_process(_: Facts) -> str | None:
    """What it holds must be no file or directory that one could go on from."""
    try:
        targets = [os.readlink("/proc/1/fd/" + name) for name in os.listdir("/proc/1/fd") if int(name) > 2]
    except OSError:
        return None
    return next((f"it holds {target}" for target in targets if target.startswith("/")), None)


def passwords(_: Facts) -> str | None:
    return unreadable("/etc/shadow", "/etc/gshadow", "/proc/1/root/etc/shadow", "/etc/ssl/private", "/etc/sudoers")


def files_of_the_agent(facts: Facts) -> str | None:
    secret = facts["secret_file"]
    return unreadable(secret, "/proc/1/root" + secret, "/proc/self/cwd/../../../.." + secret, "/../.." + secret)


def workspaces_of_others(facts: Facts) -> str | None:
    for place in facts["workspaces"]:
        try:
            return f"{place} has {os.listdir(place)}"
        except OSError:
            continue
    return None


def homes(_: Facts) -> str | None:
    seen = [place for place in ("/root", "/home", "/var/lib", "/sys", "/boot", "/mnt", "/srv") if os.path.exists(place)]
    return f"there is {seen}" if seen else None


def processes_of_others(_: Facts) -> str | None:
    strangers = [pid for pid in processes() if pid not in (1, os.getpid(), os.getppid())]
    if strangers:
        return f"it sees {strangers}"
    return None


def traces_of_the_last_task(facts: Facts) -> str | None:
    for place in ("/tmp", "/dev/shm", "/workspace", "/var/tmp"):
        left = [name for name in os.listdir(place) if not name.startswith("headway")]
        if left:
            return f"{place} has {left}"
    mode = "w"
    for place in ("/tmp", "/dev/shm", "/workspace"):
        with open(place + "/trace", mode) as file:
            file.write(facts["canary"])
    return None


def signal_the_agent(facts: Facts) -> str | None:
    try:
        os.kill(facts["agent"], 0)
    except OSError:
        return None
    return None if facts["agent"] in processes() else "the agent could be signalled"


def kill_everybody(_: Facts) -> str | None:
    """Everybody is whom it sees: nobody. Its first process does not hear it."""
    for whom in (-1, 1):
        try:
            os.kill(whom, signal.SIGKILL)
        except OSError:
            continue
    time.sleep(0.05)
    return None


def trace(_: Facts) -> str | None:
    return all_refused(("ptrace", 0, 0, 0, 0), ("ptrace", 16, 1, 0, 0), ("ptrace", 0x4206, 1, 0, 0))


def memory_of_the_first_process(_: Facts) -> str | None:
    return refused("process_vm_readv", 1, 0, 0, 0, 0, 0) or unreadable("/proc/1/mem", "/proc/kcore", "/dev/mem")


def descriptor_of_the_first_process(_: Facts) -> str | None:
    pidfd = call("pidfd_open", 1, 0)
    return refused("pidfd_getfd", pidfd, 0, 0)


def compare_processes(_: Facts) -> str | None:
    return refused("kcmp", 1, 1, 0, 0, 0)


def abstract_socket(facts: Facts) -> str | None:
    return unreachable(socket.AF_UNIX, "\0" + facts["abstract"])


def socket_of_a_service(facts: Facts) -> str | None:
    for path in (facts["socket"], "/run/docker.sock", "/var/run/docker.sock", "/run/dbus/system_bus_socket"):
        found = unreachable(socket.AF_UNIX, path)
        if found:
            return found
    return None


def shared_memory_of_others(facts: Facts) -> str | None:
    found = call("shmget", facts["shm_key"], 0, 0)
    return "a segment of somebody else is there" if found >= 0 else None


def become_root(_: Facts) -> str | None:
    for become in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0])):
        try:
            become()
        except OSError:
            continue
        return "it became somebody else"
    return None if os.geteuid() not in (0, 65534) else f"it is {os.geteuid()}"


def setuid_programs(_: Facts) -> str | None:
    """A program that would make its caller root must not."""
    if LIBC.prctl(39, 0, 0, 0, 0) != 1:
        return "no_new_privs is not set"
    for place in ("/usr", "/tmp", "/dev/shm", "/workspace"):
        if not os.statvfs(place).f_flag & os.ST_NOSUID:
            return f"{place} heeds setuid bits"
    return None


def capabilities(facts: Facts) -> str | None:
    sets = ["CapEff", "CapPrm", "CapInh", "CapAmb"] + (["CapBnd"] if facts.get("image") is None else [])
    with open("/proc/self/status") as file:
        found = dict(line.split(":", 1) for line in file)
    held = [name for name in sets if int(found[name], 16)]
    if held:
        return f"it holds {held}"
    header, wanted = struct.pack("=Ii", 0x20080522, 0), struct.pack("=6I", *[0xFFFFFFFF] * 6)
    return "it raised capabilities" if call("capset", header, wanted) == 0 else None


def file_capabilities(_: Facts) -> str | None:
    with open("/workspace/program", "w"):
        pass
    try:
        os.setxattr("/workspace/program", "security.capability", struct.pack("<5I", 0x02000001, 0xFFFFFFFF, 0, 0, 0))
    except OSError:
        return None
    return "a file was given capabilities"


def user_namespace(_: Facts) -> str | None:
    return all_refused(("unshare", NEWUSER), ("clone", NEWUSER | 17, 0, 0, 0, 0), ("clone3", 0, 88))


def other_namespaces(_: Facts) -> str | None:
    for name, flag in NAMESPACES.items():
        wrong = refused("unshare", flag) or refused("clone", flag | 17, 0, 0, 0, 0)
        if wrong:
            return f"{name}: {wrong}"
    return None


def enter_a_namespace(_: Facts) -> str | None:
    for name in NAMESPACES:
        try:
            there = os.open("/proc/1/ns/" + name, os.O_RDONLY)
        except OSError:
            continue
        wrong = refused("setns", there, 0)
        if wrong:
            return wrong
    return None


def own_capable_namespace(_: Facts) -> str | None:
    for path, text in (("/proc/self/uid_map", "0 0 1"), ("/proc/sys/user/max_user_namespaces", "9")):
        try:
            with open(path, "w") as file:
                file.write(text)
        except OSError:
            continue
        return f"{path} was written"
    return None


def mount(_: Facts) -> str | None:
    return all_refused(
        ("mount", b"none", b"/tmp", b"tmpfs", 0, 0),
        ("mount", b"/usr", b"/tmp", 0, 4096, 0),
        ("mount", 0, b"/usr", 0, 4096 | 32, 0),
    )


def unmount(_: Facts) -> str | None:
    return all_refused(("umount2", b"/proc", 2), ("umount2", b"/etc", 2), ("umount2", b"/", 2))


def mount_by_the_new_calls(_: Facts) -> str | None:
    return all_refused(
        ("fsopen", b"tmpfs", 0), ("open_tree", -100, b"/", 1), ("mount_setattr", -100, b"/usr", 0, 0, 0),
        ("move_mount", -1, b"", -1, b"/", 0),
    )  # fmt: skip


def change_root(_: Facts) -> str | None:
    return all_refused(("chroot", b"/tmp"), ("pivot_root", b"/tmp", b"/tmp"))


def write_the_system(_: Facts) -> str | None:
    return unwritable("/x", "/usr/x", "/etc/passwd", "/etc/x", "/bin/x", "/usr/bin/python3", "/run/x", "/dev/x")


def write_the_kernel(_: Facts) -> str | None:
    names = ("kernel/core_pattern", "kernel/modprobe", "vm/drop_caches", "net/ipv4/ip_forward", "kernel/hostname")
    return unwritable(*("/proc/sys/" + name for name in names), "/proc/sysrq-trigger")


def devices(_: Facts) -> str | None:
    for mode, number in ((0o20666, os.makedev(1, 1)), (0o60666, os.makedev(8, 0)), (0o60666, os.makedev(254, 0))):
        wrong = refused("mknodat", -100, b"/workspace/device", mode, number)
        if wrong:
            return wrong
    return unreadable("/dev/mem", "/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/fuse", "/dev/kvm", "/dev/console")


def files_by_handle(_: Facts) -> str | None:
    return all_refused(("name_to_handle_at", -100, b"/", 0, 0, 0), ("open_by_handle_at", 0, 0, 0))


def hard_links_out(_: Facts) -> str | None:
    for source in ("/etc/passwd", "/usr/bin/python3", "/proc/1/environ"):
        try:
            os.link(source, "/workspace/link")
        except OSError:
            continue
        return f"{source} was linked"
    return None


def control_groups(_: Facts) -> str | None:
    with open("/proc/self/mountinfo") as file:
        if "cgroup" in file.read():
            return "control groups are mounted"
    return unwritable("/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def unsized_places(facts: Facts) -> str | None:
    """Whatever can be written and is in memory has a size."""
    with open("/proc/self/mounts") as file:
        rows = [line.split() for line in file]
    for _, place, kind, options, _, _ in rows:
        try:
            room = os.statvfs(place)
        except FileNotFoundError:  # something else is mounted over it: nobody gets there
            continue
        if kind == "tmpfs" and "rw" in options.split(",") and room.f_blocks * room.f_frsize > facts["tmpfs_max"]:
            return f"{place} has {room.f_blocks * room.f_frsize} bytes"
    return None


def raw_sockets(_: Facts) -> str | None:
    packet = no_socket(17, socket.SOCK_RAW, 0x0300) or no_socket(17, socket.SOCK_DGRAM, 8)
    return no_socket(socket.AF_INET, socket.SOCK_RAW, 1) or packet


def netlink(_: Facts) -> str | None:
    return no_socket(16, socket.SOCK_RAW, 0) or no_socket(16, socket.SOCK_DGRAM, 15)


def vsock(_: Facts) -> str | None:
    return no_socket(40, socket.SOCK_STREAM) or unreadable("/dev/vsock", "/dev/vhost-vsock")


def rare_sockets(_: Facts) -> str | None:
    for family in (3, 4, 5, 9, 15, 21, 29, 30, 31, 38, 39, 41, 43, 44):
        wrong = no_socket(family, socket.SOCK_DGRAM) or no_socket(family, socket.SOCK_STREAM)
        if wrong:
            return wrong
    return no_socket(socket.AF_INET, socket.SOCK_STREAM, 132)


def loopback_of_the_host(facts: Facts) -> str | None:
    return unreachable(socket.AF_INET, ("127.0.0.1", facts["port"]))


def metadata_service(_: Facts) -> str | None:
    return unreachable(socket.AF_INET, ("169.254.169.254", 80)) or unreachable(socket.AF_INET6, ("fd00:ec2::254", 80))


def internet(_: Facts) -> str | None:
    return unreachable(socket.AF_INET, ("1.1.1.1", 53)) or unreachable(socket.AF_INET6, ("2606:4700:4700::1111", 53))


def keyring(_: Facts) -> str | None:
    return all_refused(
        ("keyctl", 0, -3, 0, 0, 0), ("add_key", b"user", b"k", b"v", 1, -3), ("request_key", b"user", b"k", 0, -3)
    )  # fmt: skip


def type_into_a_terminal(_: Facts) -> str | None:
    ours, theirs = os.openpty()
    for command in (0x5412, 0x541C):
        for high in (0, 1 << 32):
            LIBC.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_char_p]
            if LIBC.ioctl(theirs, command | high, b"x") == 0 or ctypes.get_errno() != errno.EPERM:
                return f"ioctl {command | high:#x} is let through"
    os.close(ours)
    return None


def io_uring(_: Facts) -> str | None:
    return refused("io_uring_setup", 8, ctypes.create_string_buffer(256))


def bpf(_: Facts) -> str | None:
    return refused("bpf", 0, ctypes.create_string_buffer(128), 128)


def perf(_: Facts) -> str | None:
    return refused("perf_event_open", struct.pack("=II", 1, 128) + bytes(120), 0, -1, -1, 0)


def user_faults(_: Facts) -> str | None:
    return refused("userfaultfd", 1) or unreadable("/dev/userfaultfd")


def modules_and_reboot(_: Facts) -> str | None:
    return all_refused(
        ("init_module", 0, 0, b""), ("kexec_load", 0, 0, 0, 0), ("swapon", b"/x", 0), ("acct", 0),
        ("quotactl", 0, 0, 0, 0), ("reboot", 0xFEE1DEAD - (1 << 32), 672274793, 0, 0), ("syslog", 2, 0, 0),
    )  # fmt: skip


def clock_and_name(_: Facts) -> str | None:
    return all_refused(("settimeofday", struct.pack("=qq", 0, 0), 0), ("sethostname", b"x", 1))


def calls_of_another_machine(_: Facts) -> str | None:
    """The calls of i386 and of x32 have other numbers, which a list could have forgotten."""
    if platform.machine() != "x86_64":
        return None
    if LIBC.syscall(ctypes.c_long(0x40000000 | 39)) != -1:
        return "calls of x32 are let through"
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\x53\xb8\x14\x00\x00\x00\xcd\x80\x5b\xc3")  # push rbx; mov eax, getpid; int 0x80; pop rbx; ret
    program = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    found = program()
    return None if found == -errno.ENOSYS else f"getpid of i386 answered {found}"


def predictable_addresses(_: Facts) -> str | None:
    return refused("personality", 0x0040000)


ATTACKS: list[Attack] = [
    environment_of_the_agent, environment_of_the_first_process, inherited_descriptors, descriptors_of_the_first_process,
    passwords, files_of_the_agent, workspaces_of_others, homes, processes_of_others, traces_of_the_last_task,
    signal_the_agent, kill_everybody, trace, memory_of_the_first_process, descriptor_of_the_first_process,
    compare_processes, abstract_socket, socket_of_a_service, shared_memory_of_others, become_root, setuid_programs,
    capabilities, file_capabilities, user_namespace, other_namespaces, enter_a_namespace, own_capable_namespace, mount,
    unmount, mount_by_the_new_calls, change_root, write_the_system, write_the_kernel, devices, files_by_handle,
    hard_links_out, control_groups, unsized_places, raw_sockets, netlink, vsock, rare_sockets, loopback_of_the_host,
    metadata_service, internet, keyring, type_into_a_terminal, io_uring, bpf, perf, user_faults, modules_and_reboot,
    clock_and_name, calls_of_another_machine, predictable_addresses,
]  # fmt: skip


def main() -> int:
    """Tries the attack that was named."""
    name, facts = sys.argv[1], json.loads(sys.argv[2])
    CALLS.update(facts["calls"])
    broken = next(attack for attack in ATTACKS if attack.__name__ == name)(facts)
    sys.stdout.write(f"broken: {broken}\n" if broken else "held\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
