"""Attempts of commands to get out of their jail. Each prints ESCAPED if it succeeds; all are counted."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from corral.containment import Tier
from corral.shells import JailedShell, ShellLimits

__all__ = ["expect_no_escape", "jailed"]

SYSTEM_CALLS: Mapping[str, tuple[int, ...]] = {
    # x86-64, with arguments that would do something (arch/x86/entry/syscalls/syscall_64.tbl)
    "mount": (165, 0, 0, 0, 0, 0), "umount2": (166, 0, 0), "pivot_root": (155, 0, 0), "chroot": (161, 0),
    "unshare user": (272, 0x1000_0000), "unshare mount": (272, 0x2_0000), "unshare net": (272, 0x4000_0000),
    "unshare pid": (272, 0x2000_0000), "setns": (308, 0, 0), "ptrace": (101, 16, 1, 0, 0),
    "process_vm_readv": (310, 1, 0, 0, 0, 0, 0), "process_vm_writev": (311, 1, 0, 0, 0, 0, 0), "bpf": (321, 0, 0, 0),
    "perf_event_open": (298, 0, 0, -1, -1, 0), "userfaultfd": (323, 0), "keyctl": (250, 0, 0, 0, 0, 0),
    "add_key": (248, 0, 0, 0, 0, 0), "request_key": (249, 0, 0, 0, 0), "kexec_load": (246, 0, 0, 0, 0),
    "init_module": (175, 0, 0, 0), "finit_module": (313, 0, 0, 0), "delete_module": (176, 0, 0),
    "open_by_handle_at": (304, 0, 0, 0), "name_to_handle_at": (303, 0, 0, 0, 0, 0), "swapon": (167, 0, 0),
    "reboot": (169, 0, 0, 0, 0), "syslog": (103, 3, 0, 0), "acct": (163, 0), "iopl": (172, 3), "ioperm": (173, 0, 1, 1),
    "settimeofday": (164, 0, 0), "clock_settime": (227, 0, 0), "sethostname": (170, 0, 0), "io_uring": (425, 1, 0),
    "fsopen": (430, 0, 0), "open_tree": (428, 0, 0, 0), "move_mount": (429, 0, 0, 0, 0, 0), "fsmount": (432, 0, 0, 0),
    "mount_setattr": (442, 0, 0, 0, 0, 0), "clone3": (435, 0, 0), "clone newuser": (56, 0x1000_0011, 0, 0, 0, 0),
    "clone newnet": (56, 0x4000_0011, 0, 0, 0, 0), "memfd_create": (319, 0, 0), "memfd_secret": (447, 0),
    "personality": (135, 0), "quotactl": (179, 0, 0, 0, 0), "vhangup": (153,), "fanotify_init": (300, 0, 0),
    "mbind": (237, 0, 0, 0, 0, 0, 0), "migrate_pages": (256, 0, 0, 0, 0), "move_pages": (279, 1, 0, 0, 0, 0, 0),
    "kcmp": (312, 1, 1, 0, 0, 0), "shmget": (29, 1, 4096, 0o1600), "msgget": (68, 1, 0o1600),
    "mq_open": (240, 0, 0, 0, 0), "pidfd_getfd": (438, 0, 0, 0), "process_madvise": (440, 0, 0, 0, 0, 0),
    "setxattr": (188, 0, 0, 0, 0, 0), "modify_ldt": (154, 0, 0, 0), "landlock_create_ruleset": (444, 0, 0, 1),
}  # fmt: skip
_READ = (
    "/etc/shadow /etc/sudoers /etc/ssh/sshd_config /etc/fstab /etc/machine-id /root/.bashrc /root/.profile /home "
    "/var/log /var/lib/dpkg/status /var/run/docker.sock /run/docker.sock /run /opt /srv /mnt /media /boot /sys "
    "/sys/kernel /sys/fs/cgroup /sys/class/net /proc/kcore /proc/kmsg /proc/1/mem /proc/1/root/root /proc/1/cwd/root "
    "/proc/sys/kernel/core_pattern.x /dev/mem /dev/kmem /dev/kmsg /dev/sda /dev/vda /dev/nvme0n1 /dev/loop0 /dev/fuse "
    "/dev/kvm /dev/net/tun /dev/input /dev/disk /proc/self/root/root /proc/self/cwd/../root /workspace/../root"
).split()
_WRITE = (
    "/x /usr/x /usr/bin/x /bin/x /lib/x /etc/x /etc/passwd /etc/hosts /etc/ld.so.preload /dev/x /proc/x "
    "/proc/sys/kernel/core_pattern /proc/sys/kernel/hostname /proc/sys/vm/drop_caches /proc/sysrq-trigger "
    "/proc/1/oom_score_adj.x /proc/self/uid_map /proc/self/setgroups /sys/x /root/x /home/x /var/x /run/x /opt/x"
).split()
_OTHERS = {
    "setuid bit": "cp /usr/bin/id . && chmod u+s id && [ -u id ]",
    "setgid bit": "cp /usr/bin/id . && chmod g+s id && [ -g id ]",
    "setuid by install": "install -m 4755 /usr/bin/id idd && [ -u idd ]",
    "set-id programs of the system": "su -c true </dev/null || sudo -n true",
    "root": '[ "$(id -u)" = 0 ]',
    "capabilities": "grep CapEff /proc/self/status | grep -v 0000000000000000",
    "bounding set": "grep CapBnd /proc/self/status | grep -v 0000000000000000",
    "privileges can be gained": "grep -q 'NoNewPrivs:.0' /proc/self/status",
    "no filter": "grep -q 'Seccomp:.0' /proc/self/status",
    "block device": "mknod disk b 8 0",
    "character device": "mknod memory c 1 1",
    "mount": "mount -t tmpfs x /tmp",
    "bind mount": "mount --bind / /tmp",
    "remount": "mount -o remount,rw /",
    "overmounted proc": "mount -t proc proc /tmp",
    "unshare": "unshare -Urm true",
    "nsenter": "nsenter -t 1 -m true",
    "chroot": "chroot / true",
    "kernel log": "dmesg | grep -q .",
    "host processes": '[ "$(ls -d /proc/[0-9]* | wc -l)" -gt 12 ]',
    "other users' processes": "ps -eo user= | grep -qv user",
    "host paths in command lines": "cat /proc/*/cmdline | tr '\\0' '\\n' | grep -E '^/(work|root|home|tmp/corral)'",
    "environment of others": "cat /proc/1/environ | tr '\\0' '\\n' | grep -q SECRET_OF_THE_HOST",
    "own environment": "env | grep -q SECRET_OF_THE_HOST",
    "raised limit": "ulimit -u unlimited",
    "raised hard limit": "ulimit -Hn 100000",
    "negative nice": "nice -n -5 true 2>&1 | grep -vq cannot",
    "real-time": "chrt -f 1 true",
    "ping": "ping -c 1 -W 1 127.0.0.1",
    "raw socket": "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)'",
    "packet socket": "python3 -c 'import socket; socket.socket(17, 3)'",
    "netlink": "python3 -c 'import socket; socket.socket(16, 3)'",
    "vsock": "python3 -c 'import socket; socket.socket(40, 1)'",
    "alg": "python3 -c 'import socket; socket.socket(38, 5)'",
    "bluetooth": "python3 -c 'import socket; socket.socket(31, 3)'",
    "hostname": "hostname other",
    "clock": "date -s 2000-01-01",
    "secrets in the first process's memory": (
        "python3 -c 'import re; d = open(\"/proc/1/mem\", \"rb\"); "
        "[exit(0) for m in re.findall(\"^(.*?)-(.*?) r.*(?:heap|stack)\", open(\"/proc/1/maps\").read(), re.M) "
        "if d.seek(int(m[0], 16)) and b\"SECRET_OF\" + b\"_THE_HOST\" in d.read(int(m[1], 16) - int(m[0], 16))]; exit(1)'"
    ),
    "debugger": "python3 -c 'import ctypes,os; exit(ctypes.CDLL(None).ptrace(16, 1, 0, 0) and 1)'",
    "immutable file": "touch i; chattr +i i",
    "link to what is not there": "ln -s /etc/shadow l; cat l",
    "hard link to the system": "ln /usr/bin/id linked",
    "core dump": "ulimit -c unlimited",
    "terminal": "echo x > /dev/tty",
    "sysctl": "sysctl -w kernel.panic=1",
    "cgroup": "mkdir /sys/fs/cgroup/x",
    "loop device": "losetup -f",
    "user namespace file": "echo 0 0 1 > /proc/self/uid_map",
}  # fmt: skip


_WITHOUT_NAMESPACES: Mapping[str, str] = {
    # What Landlock does not cover, or covers by rights of its own.
    "mode of the host's file": "chmod 777 $SECRET && [ $(stat -c %a $SECRET) = 777 ]",
    "time of the host's file": "touch -d 2001-01-01 $SECRET && [ $(stat -c %Y $SECRET) -lt 1000000000 ]",
    "owner of the host's file": "[ $(stat -c %u $SECRET) != $(id -u) ] && chown $(id -u) $SECRET && [ $(stat -c %u $SECRET) = $(id -u) ]",
    "attributes of the host's file": "getfattr -d $SECRET | grep -q .",
    "truncating the host's file": "truncate -s 0 $SECRET && [ ! -s $SECRET ]",
    "truncating by a redirection": ": > $SECRET",
    "moving the host's file": "mv $SECRET mine",
    "moving something there": "echo x > m && mv m $(dirname $SECRET)/m",
    "hard link to the host's file": "ln $SECRET linked",
    "removing the host's file": "rm -f $SECRET && [ ! -e $SECRET ]",
    "replacing the session's folder": "mv $PWD ${PWD}x || rmdir $PWD",
    "listing beside the session": "ls .. | grep -q .",
    "listing of another session": "ls $OTHER | grep -q .",
    "reading of another session": "cat $OTHER/private",
    "writing to another session": "echo x > $OTHER/x",
    "mode of another session's folder": "chmod 777 $OTHER && [ $(stat -c %a $OTHER) = 777 ]",
    "removing another session's file": "rm -f $OTHER/private",
    "executing the host's file": "$SCRIPT",
    "the loader with the host's file": "/lib64/ld-linux-x86-64.so.2 $SCRIPT",
    "memory of the host": "head -c 1 /proc/$HOST/mem",
    "descriptors of the host": "ls /proc/$HOST/fd | grep -q .",
    "working directory of the host": "cd /proc/$HOST/cwd && ls | grep -q .",
    "executable of the host": "readlink /proc/$HOST/exe",
    "environment of the supervisor": "cat /proc/$PPID/environ",
    "ending the supervisor": "kill -9 $PPID",
    "stopping the supervisor": "kill -STOP $PPID",
    "signal 0 to all": "for p in $ALL; do kill -0 $p && exit; done; exit 1",
    "priority of the host's process": "renice -n 19 -p $HOST",
    "priority of all of the user": "renice -n 19 -u $(id -u)",
    "processors of the host's process": "taskset -pc 0 $HOST",
    "limits of the host's process": "prlimit --pid $HOST --nofile=10:10",
    "limits of the supervisor": "prlimit --pid $PPID --nofile=10:10",
    "scheduler of the supervisor": "chrt -b -p 0 $PPID",
    "datagram to a socket with a path": (
        "python3 -c 'import os, socket; a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); "
        'a.sendto(b"x", os.environ["SOCKET"])\''
    ),
    "stream to a socket with a path": (
        'python3 -c \'import os, socket; a, b = socket.socketpair(); a.sendto(b"x", os.environ["SOCKET"])\' && false'
    ),
    "a unix socket": "python3 -c 'import socket; socket.socket(socket.AF_UNIX)'",
    "an internet socket": "python3 -c 'import socket; socket.socket()'",
    "a datagram socket": "python3 -c 'import socket; socket.socket(2, 2)'",
    "names by inotify": (
        "python3 -c 'import ctypes; l = ctypes.CDLL(None); exit(l.inotify_add_watch(l.inotify_init(), b\"/tmp\", 0x100) < 0)'"
    ),
    "processor clock of the host": "python3 -c 'import os, time; time.clock_gettime(~int(os.environ[\"HOST\"]) << 3 | 2)'",
    "shared memory": "echo x > /dev/shm/x",
    "another temporary directory": "echo x > /tmp/x || echo x > /var/tmp/x",
    "a process in another's group": "python3 -c 'import os; os.setpgid(0, int(os.environ[\"HOST\"]))'",
    "a device of the system": "head -c 1 /dev/mem || head -c 1 /dev/vda || echo x > /dev/kmsg",
    "effective or permitted capabilities": (
        "python3 -c 'import ctypes; h = (ctypes.c_uint32 * 2)(0x20080522, 0); d = (ctypes.c_uint32 * 6)(); "
        "exit(ctypes.CDLL(None).capget(h, d) == 0 and not any(d))'"
    ),
    "mode of what can only be read": "chmod 777 $READ/file && [ $(stat -c %a $READ/file) = 777 ]",
    "mode of what is for reading by its descriptor": (
        'python3 -c \'import os; f = os.open(os.environ["READ"] + "/file", 0); os.fchmod(f, 0o777); '
        "exit(os.fstat(f).st_mode & 0o777 != 0o777)'"
    ),
    "times of what is for reading by its descriptor": (
        'python3 -c \'import os; f = os.open(os.environ["READ"] + "/file", 0); os.utime(f, (1, 1)); '
        "exit(os.fstat(f).st_mtime != 1)'"
    ),
    "hosts users": "cat /etc/passwd || getent passwd root",
}
_CALLS = r"""
import ctypes, json, sys
libc = ctypes.CDLL(None, use_errno=True)
for name, (number, *arguments) in json.load(sys.stdin).items():
    result = libc.syscall(number, *map(ctypes.c_long, arguments))
    # EPERM, ENOSYS and EOPNOTSUPP are answers of the filter; another error is the kernel itself.
    refused = result == -1 and ctypes.get_errno() in (1, 38, 95)
    print("DONE" if refused else "ESCAPED", name)
"""


@asynccontextmanager
async def jailed(tier: Tier = "namespaces", **options: Any) -> AsyncGenerator[JailedShell]:
    """A shell in this tier, with what it may not be able to hold accepted."""
    limits = replace(options.pop("limits", ShellLimits()), tier=tier)
    if tier == "landlock":
        limits = replace(limits, accept_unenforced={"disk", "locks", "processes"})
    async with JailedShell(limits=limits, **options) as shell:
        yield shell


async def expect_no_escape(place: Path, tier: Tier, **options: Any) -> None:
    """Makes all attempts, at what is in a directory that every user may search."""
    secret, script, path = place / "secret", place / "script", place / "socket"
    secret.write_text("secret")
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as box,
        _no_signal(),
    ):
        box.bind(str(path))
        path.chmod(0o777)
        for each in (server, box):
            each.setblocking(False)
        async with jailed(tier, **options) as shell, jailed(tier) as other:
            await other.files.write_text("private", "SECRET")
            attempts = dict(_attempts(secret, server.getsockname()[1]))
            if tier == "landlock":
                attempts |= _WITHOUT_NAMESPACES
            if "processes" in shell.capabilities.unenforced and os.geteuid() == 0:
                del attempts["root"]  # by number, without a capability
            env = {
                "SECRET": str(secret), "SCRIPT": str(script), "SOCKET": str(path), "READ": str(place / "read"), "HOST": str(os.getpid()),
                "OTHER": (await other.run("pwd")).stdout.strip(),
                "ALL": " ".join(each.name for each in Path("/proc").glob("[0-9]*")),
            }  # fmt: skip
            names = [*attempts]
            assert len(names) + len(SYSTEM_CALLS) >= 150
            said: list[str] = []

            async def attempt(some: list[str]) -> None:
                lines = [
                    f"({attempts[name]}) >/dev/null 2>&1 </dev/null && echo ESCAPED {shlex.quote(name)}; "
                    f"echo DONE {shlex.quote(name)}"
                    for name in some
                ]
                done = await shell.run("\n".join(lines), env=env, timeout_seconds=60)
                said.extend(done.stdout.splitlines())

            async with anyio.create_task_group() as tasks:
                for start in range(8):
                    tasks.start_soon(attempt, names[start::8])
            calls = await shell.run(f"python3 -c '{_CALLS}'", input=json.dumps(SYSTEM_CALLS))
            said += calls.stdout.splitlines()
            escaped = [line for line in said if line.startswith("ESCAPED")]
            assert not escaped, "\n".join(escaped)
            assert sorted(said) == sorted(f"DONE {name}" for name in (*names, *SYSTEM_CALLS)), calls
            assert await other.files.read_text("private") == "SECRET"
            found = secret.stat()
            assert (secret.read_text(), found.st_mode & 0o777, found.st_mtime > 1e9) == ("secret", 0o644, True)
        for receive in (server.accept, lambda: box.recv(10)):
            try:
                receive()
            except BlockingIOError:
                continue
            raise AssertionError("something has arrived")


@contextmanager
def _no_signal() -> Generator[None]:
    """Fails if this process gets SIGURG within the block, which other processes ignore."""
    got: list[int] = []
    before = signal.signal(signal.SIGURG, lambda number, _: got.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGURG, before)
    assert not got


def _attempts(secret: Path, port: int) -> Iterator[tuple[str, str]]:
    own = [str(secret), str(secret.parent), str(Path(__file__)), str(Path.cwd())]
    own += [] if sys.prefix.startswith("/usr") else [sys.prefix]  # which commands may read
    for path in (*_READ, *own):
        yield f"read {path}", f"cat {path} 2>/dev/null | grep -q . || (test -d {path} && ls -A {path} | grep -q .)"
    for path in _WRITE:
        yield f"write {path}", f"echo x > {path}"
    for host in (
        "127.0.0.1",
        "localhost",
        "1.1.1.1",
        "169.254.169.254",
        "10.0.0.1",
        "192.168.0.1",
        "host.docker.internal",
    ):
        yield f"connect {host}", f"timeout 3 bash -c 'exec 3<>/dev/tcp/{host}/{port}'"
    yield "udp", f'python3 -c \'import socket; socket.socket(2, 2).sendto(b"x", ("1.1.1.1", {port}))\''
    yield "ipv6", f"timeout 3 bash -c 'exec 3<>/dev/tcp/::1/{port}'"
    # In namespaces, a process of the command's own may have that number.
    yield "signal to the host's process", f"kill -URG {os.getpid()} && false"
    yield from _OTHERS.items()


if __name__ == "__main__":
    anyio.run(expect_no_escape, Path(sys.argv[1]), "landlock")
    sys.stdout.write("contained\n")
