"""Commands in namespaces: sessions that programs and commands share, bounds, and attempts to get out."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from corral import Corral, Directory, Mount, Scratch
from corral.errors import ConfigError, FileError, ShellError
from corral.shells import JailedShell, ShellLimits

pytestmark = pytest.mark.anyio

_SYSTEM_CALLS: Mapping[str, tuple[int, ...]] = {
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


@asynccontextmanager
async def _shell(**options: object) -> AsyncGenerator[JailedShell]:
    async with JailedShell(**options) as shell:  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        yield shell


async def test_no_attempt_gets_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each prints ESCAPED if it succeeds; all are counted, so that none is lost."""
    monkeypatch.setenv("SECRET_OF_THE_HOST", "secret")
    secret = tmp_path / "secret"
    secret.write_text("secret")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        attempts = [*_attempts(secret, server.getsockname()[1])]
        assert len(attempts) >= 150
        async with _shell(limits=ShellLimits(commands=16)) as shell, _shell() as other:
            await other.files.write_text("private", "SECRET")
            escaped: list[str] = []
            turn = anyio.Semaphore(4)

            async def attempt(name: str, command: str) -> None:
                async with turn:
                    done = await shell.run(f"({command}) && echo ESCAPED; echo DONE", timeout_seconds=20)
                if "DONE" not in done.stdout or "ESCAPED" in done.stdout:
                    escaped.append(f"{name}: {done}")

            async with anyio.create_task_group() as tasks:
                for name, command in attempts:
                    tasks.start_soon(attempt, name, command)
            assert not escaped, "\n".join(escaped)
            assert await other.files.read_text("private") == "SECRET"
        with pytest.raises(BlockingIOError):
            server.accept()


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
    yield "signal to the host's process", f"kill -0 {os.getpid()}"
    yield from _OTHERS.items()
    for name, (number, *arguments) in _SYSTEM_CALLS.items():
        texts = ", ".join(f"ctypes.c_long({each})" for each in arguments)
        # EPERM and ENOSYS are the filter's answers; another error would be the kernel's own.
        call = f"libc.syscall({', '.join(filter(None, [str(number), texts]))})"
        check = (
            f"python3 -c 'import ctypes; libc = ctypes.CDLL(None, use_errno=True); result = {call}; "
            "exit(result == -1 and ctypes.get_errno() in (1, 38))'"
        )
        yield f"system call {name}", check


async def test_programs_and_commands_share_a_session() -> None:
    async with Corral() as corral, corral.session(shell=ShellLimits()) as session:
        await session.files.write_text("in.txt", "host")
        program = await session.execute(
            'import fs from "fs"; fs.writeFileSync("ts.txt", fs.readFileSync("in.txt", "utf8") + " ts")'
        )
        assert program.error is None
        done = await session.shell.run(
            "cat ts.txt; printf '#!/bin/sh\\necho script' > run; chmod +x run; ./run; echo t > /tmp/t"
        )
        assert done.stdout == "host tsscript\n", done
        program = await session.execute(
            'import os\n(open("run").read(), open("/tmp/t").read(), os.getcwd())', language="python"
        )
        assert program.value == ["#!/bin/sh\necho script", "t\n", "/workspace"], program
        await session.shell.run("ln -s /etc/passwd link; mkfifo fifo; echo new > new")
        program = await session.execute("return 1")
        assert program.error is None
        assert program.files is not None
        assert "/workspace/new" not in program.files.created  # made by the host's command, not by the program
        assert await session.files.read_text("new") == "new\n"
        with pytest.raises(FileError, match="link"):
            await session.files.read_text("link")


async def test_a_session_without_a_shell_says_so() -> None:
    async with Corral() as corral, corral.session() as session:
        with pytest.raises(ConfigError, match="shell=True"):
            _ = session.shell


async def test_bounds_of_memory_processes_disk_and_number() -> None:
    limits = ShellLimits(memory_mb=200, processes=20, commands=2)
    async with _shell(files=[Mount("/workspace", Scratch(bytes=1_000_000, files=10))], limits=limits) as shell:
        done = await shell.run("python3 -c 'bytearray(300 << 20)'")
        assert "MemoryError" in done.stderr
        done = await shell.run(
            "for i in 1 2 3; do python3 -c 'b = bytearray(90 << 20); import time; time.sleep(60)' & done; wait"
        )
        assert done.exit_code == 137
        assert "200 MB of memory together" in done.stderr
        done = await shell.run("for i in $(seq 1 60); do sleep 5 & done; kill $(jobs -p)")
        assert "Resource temporarily unavailable" in done.stderr
        done = await shell.run(":(){ :|:& };:; sleep 0.3; echo alive")
        assert "alive" in done.stdout
        done = await shell.run(
            "head -c 2000000 /dev/zero > big; stat -c %s big; for n in $(seq 1 20); do : > f$n; done; ls | wc -l"
        )
        size, count = map(int, done.stdout.split())
        assert size <= 1_003_520  # whole pages
        assert count == 10
        assert "No space left" in done.stderr
        async with await shell.spawn("sleep 60"), await shell.spawn("sleep 60"):
            with pytest.raises(ShellError, match="ShellLimits"):
                await shell.run("true")
        assert (await shell.run("echo again")).stdout == "again\n"


async def test_a_directory_of_the_host_is_for_reading_unless_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    files = [Mount("/workspace"), Mount("/in", Directory(tmp_path))]
    limits = ShellLimits(processes=20)
    async with _shell(files=files, limits=limits) as shell:
        done = await shell.run("cat /in/file; echo x > /in/new")
        assert done.stdout == "text"
        assert "Read-only" in done.stderr
        done = await shell.run("for i in $(seq 1 60); do sleep 50 & done; wait")  # also where commands are root's
        assert done.exit_code == 137 or "Resource temporarily unavailable" in done.stderr


async def test_nothing_is_left_and_what_is_closed_says_so() -> None:
    shell = JailedShell()
    with pytest.raises(ConfigError, match="async with"):
        await shell.run("true")
    async with shell:
        process = await shell.spawn("sleep 1000")
    assert await process.wait() == 137
    with pytest.raises(ConfigError, match="async with"):
        await shell.run("true")
    with pytest.raises(ConfigError, match="positive"):
        ShellLimits(processes=0)
    with pytest.raises(ShellError, match="file"):
        async with JailedShell() as shell:
            await shell.run(f": {'x' * 200_000}")
