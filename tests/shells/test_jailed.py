"""Commands in a jail: sessions that programs and commands share, bounds, and attempts to get out."""

from __future__ import annotations

import io
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskStatus

import corral
from corral import Corral
from corral.containment import Tier
from corral.egress import Network
from corral.errors import ConfigError, FileError, LimitNotEnforceable, ShellError, StartFailed
from corral.sandboxes import DenoSandbox, SandboxProvider
from corral.sessions import Directory, Mount, Scratch
from corral.shells import JailedShell, Shell, ShellLimits
from corral.shells.jails.watch import CommandWatch
from corral.types import Language
from tests.shells.attempts import expect_no_escape, jailed
from tests.until import LIMIT_SECONDS

pytestmark = pytest.mark.anyio

_JAILS: tuple[Tier, ...] = ("namespaces", "landlock")
_BOTH = [
    "namespaces",
    pytest.param("landlock", marks=pytest.mark.matrix("the gate tries to get out of this jail too; here its sessions")),
]
_SOMEBODY = 12_345


def site_packages() -> list[str]:
    return [each for each in sys.path if each.endswith("site-packages")]


@pytest.mark.parametrize(("tier", "kept"), [("namespaces", False), ("landlock", False), ("landlock", True)])
async def test_no_attempt_gets_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tier: Tier, kept: bool) -> None:
    """With a directory of the host, commands keep the host's user, who may be root."""
    monkeypatch.setenv("SECRET_OF_THE_HOST", "secret")
    tmp_path.chmod(0o755)
    (tmp_path / "read").mkdir()
    (tmp_path / "read" / "file").write_text("read")
    files = [Mount("/workspace"), *([Mount("/in", Directory(tmp_path / "read"))] if kept else [])]
    with anyio.fail_after(120):
        await expect_no_escape(tmp_path, tier, files=files)
    assert (tmp_path / "read" / "file").stat().st_mode & 0o777 == 0o644


@pytest.mark.skipif(os.geteuid() != 0, reason="whoever is not root runs the test above as an ordinary user")
def test_no_attempt_gets_out_of_a_jail_whose_user_is_the_hosts() -> None:
    """Of an ordinary user, in the tier without namespaces: commands then are the user's own processes."""
    place = Path(tempfile.mkdtemp(prefix="jail-test-", dir="/tmp"))
    try:
        os.chown(place, _SOMEBODY, _SOMEBODY)
        path = [str(each) for each in (Path(__file__).parents[2], Path(corral.__file__).parents[1], *site_packages())]
        done = subprocess.run(
            ["/usr/bin/python3", "-B", "-m", "tests.shells.attempts", str(place)],
            env={
                "PYTHONPATH": ":".join(path),
                "TMPDIR": str(place),
                "SECRET_OF_THE_HOST": "secret",
                "PATH": "/usr/bin",
            },
            cwd="/",
            user=_SOMEBODY,
            group=_SOMEBODY,
            extra_groups=[],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "contained\n", ""), done
    finally:
        shutil.rmtree(place)


@pytest.mark.parametrize("tier", _BOTH)
async def test_programs_and_commands_share_a_session(tier: Tier, warm: dict[Language, str | SandboxProvider]) -> None:
    limits = ShellLimits(tier=tier, accept_unenforced={"disk", "locks", "processes"})
    async with Corral(sandbox=warm, check=False) as corral, corral.session(shell=limits) as session:
        assert session.shell.capabilities.containment == tier
        assert session.exact_quota == (tier == "namespaces")
        await session.files.write_text("in.txt", "host")
        program = await session.execute(
            'import fs from "fs"; fs.writeFileSync("ts.txt", fs.readFileSync("in.txt", "utf8") + " ts")'
        )
        assert program.error is None
        done = await session.shell.run(
            "cat ts.txt; printf '#!/bin/sh\\necho script' > run; bash run; echo t > $TMPDIR/t"
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


@pytest.mark.parametrize("tier", _BOTH)
async def test_links_that_commands_make_never_lead_out_of_their_session(
    tier: Tier, tmp_path: Path, warm_deno: DenoSandbox
) -> None:
    """For the host they are links: it sees and removes them, and neither reads nor writes through them."""
    (tmp_path / "secret").write_text("secret")
    limits = ShellLimits(tier=tier, accept_unenforced={"disk", "locks", "processes"})
    async with Corral(sandbox=warm_deno, check=False) as corral, corral.session(shell=limits) as session:
        files = session.files
        links = f"ln -s {tmp_path}/secret file; ln -s {tmp_path} folder; ln -s / deep/root; ln -s nothing dangling; "
        await session.shell.run(
            f"mkdir deep; {links} ln -s deep inner; ln -s loop loop; ln deep/own hard; echo own > deep/own; ln deep/own hard"
        )
        entries = {each.path: (each.kind, each.size) for each in await files.list(recursive=True) or ()}
        link = ("link", 0)
        assert entries == {
            "file": link, "folder": link, "dangling": link, "inner": link, "loop": link, "deep": ("directory", 0),
            "deep/root": link, "deep/own": ("file", 4), "hard": ("file", 4),
        }  # fmt: skip
        found = await files.stat("file")
        assert found is not None
        assert (found.kind, found.size) == link
        for path in ("file", "dangling", "loop", "folder/secret", "inner/own", "deep/root/etc/hostname"):
            for read in (files.read_bytes, files.read_text, files.read_stream):
                with pytest.raises(FileError, match="link"):
                    await read(path)
        for path in ("folder/secret", "folder/new", "inner/own", "deep/root/tmp/x"):
            with pytest.raises(FileError, match=r"link|Not a directory"):
                await files.stat(path)
            with pytest.raises(FileError, match=r"link|Not a directory"):
                await files.delete(path)
            with pytest.raises(FileError, match=r"link|Not a directory"):
                await files.mkdir(path)
            with pytest.raises(FileError, match=r"link|Not a directory"):
                await files.write_text(path, "x")
        for path in ("folder", "inner"):
            with pytest.raises(FileError, match=r"link|Not a directory"):
                await files.list(path)
            with pytest.raises(FileError, match=r"link|Not a directory"):
                await files.mkdir(path)
        packed = b"".join([piece async for piece in await files.export()])
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            assert sorted(archive.getnames()) == ["deep", "deep/own", "hard"]
        with pytest.raises(FileError, match=r"link|Not a directory"):
            await files.import_tar(packed, "folder")
        # Writing replaces a link, and removing removes it, whatever it leads to.
        await files.write_text("file", "mine")
        assert await files.read_text("file") == "mine"
        for path in ("folder", "dangling", "deep"):
            assert await files.delete(path)
        assert {each.path for each in await files.list(recursive=True) or ()} == {"file", "inner", "loop", "hard"}
    assert [each.name for each in tmp_path.iterdir()] == ["secret"]
    assert (tmp_path / "secret").read_text() == "secret"


async def test_a_session_without_a_shell_says_so(warm_deno: DenoSandbox) -> None:
    async with Corral(sandbox=warm_deno, check=False) as corral, corral.session() as session:
        with pytest.raises(ConfigError, match="shell=True"):
            _ = session.shell


@pytest.mark.parametrize("tier", _JAILS)
async def test_bounds_of_memory_processes_disk_and_number(tier: Tier) -> None:
    limits = ShellLimits(memory_mb=200, processes=20, commands=2)
    small = [Mount("/workspace", Scratch(bytes=1_000_000, files=10))]
    async with jailed(tier, files=small, limits=limits) as shell:
        done = await shell.run("python3 -c 'bytearray(300 << 20)'")
        assert "MemoryError" in done.stderr
        done = await shell.run(
            "for i in 1 2 3; do python3 -c 'b = bytearray(90 << 20); import time; time.sleep(60)' & done; wait"
        )
        assert done.exit_code == 137
        assert "200 MB of memory together" in done.stderr
        done = await shell.run("for i in $(seq 1 60); do sleep 5 & done; kill $(jobs -p)")
        assert "Resource temporarily unavailable" in done.stderr or "more than 20 processes" in done.stderr
        if tier == "namespaces":
            done = await shell.run(
                "head -c 2000000 /dev/zero > big; stat -c %s big; for n in $(seq 1 20); do : > f$n; done; ls | wc -l"
            )
            size, count = map(int, done.stdout.split())
            assert size <= 1_003_520  # whole pages
            assert count == 10
            assert "No space left" in done.stderr
            await shell.files.delete("big")
        else:  # the kernel holds no quota, and the host looks
            done = await shell.run("head -c 2000000 /dev/zero > big; sleep 60")
            assert done.exit_code == 137
            assert "/workspace can hold 1,000,000 bytes and 10 files" in done.stderr
            done = await shell.run("rm big; for n in $(seq 1 20); do : > f$n; done; sleep 60")
            assert "/workspace can hold 1,000,000 bytes and 10 files" in done.stderr
            for each in await shell.files.list() or ():  # else the next look would end what runs then
                await shell.files.delete(each.path)
        async with await shell.spawn("sleep 60"), await shell.spawn("sleep 60"):
            with pytest.raises(ShellError, match="ShellLimits"):
                await shell.run("true")
        assert (await shell.run("echo again")).stdout == "again\n"


async def test_what_a_command_writes_at_once_is_over_its_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the thread that looks at quotas had to wait for a processor."""
    began = threading.Event()
    look = CommandWatch._watch  # pyright: ignore[reportPrivateUsage]

    def look_late(watch: CommandWatch) -> None:
        began.wait(LIMIT_SECONDS)
        look(watch)

    monkeypatch.setattr(CommandWatch, "_watch", look_late)
    async with (
        jailed("landlock", files=[Mount("/workspace", Scratch(bytes=1_000_000))]) as shell,
        await shell.spawn("head -c 2000000 /dev/zero > big; sleep 60") as process,
    ):
        while (found := await shell.files.stat("big")) is None or found.size < 2_000_000:
            await anyio.lowlevel.checkpoint()
        began.set()
        assert await process.wait() == 137
        assert "1,000,000 bytes" in (process.reason or "")


_HOLDERS = {
    "open": "files.append(file)",
    "mapped": "files.append(mmap.mmap(file.fileno(), 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)); file.close()",
    "of a thread": "files.append(file); threading.Thread(target=time.sleep, args=(60,)).start(); left = True",
}


async def test_files_without_a_name_count_in_a_quota_that_is_looked_at() -> None:
    small = [Mount("/workspace", Scratch(bytes=1_000_000, files=10))]
    async with jailed("landlock", files=small) as shell:
        for name, hold in _HOLDERS.items():
            await shell.files.write_text(
                "hold.py",
                "import ctypes, mmap, os, threading, time\nfiles, left = [], False\n"
                "for number in range(4):\n    file = open('f', 'w+b'); os.unlink('f')\n"
                f"    file.write(bytes(600_000)); file.flush(); {hold}\n"
                "if left:\n    ctypes.CDLL(None).syscall(60 if os.uname().machine == 'x86_64' else 93, 0)\ntime.sleep(60)",
            )
            done = await shell.run("python3 hold.py")
            assert (name, done.exit_code) == (name, 137)
            assert "/workspace can hold 1,000,000 bytes and 10 files" in done.stderr
        assert (await shell.run("echo again")).stdout == "again\n"
        done = await shell.run(": > f; fallocate --keep-size --length 9000000 f; stat -c %b f")
        assert done.stdout == "0\n", "room that no length shows"


_LOCKED = ("/usr/bin/env", "/etc/ld.so.cache", "/dev/null", "/proc/1/exe", "/proc/self/exe")
_HOLD = """
import ctypes, fcntl, os, sys
libc = ctypes.CDLL(None)
files = []
for path in sys.argv[1:]:
    try:
        files.append(open(path, "rb"))
        fcntl.flock(files[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(os.open(path, os.O_RDONLY), fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno == 11:
            print(path)
watch = libc.inotify_init1(os.O_NONBLOCK)
print(watch >= 0 and libc.inotify_add_watch(watch, b"/usr/bin", 0x20) >= 0)
print("end", flush=True)
sys.stdin.read()
if watch >= 0:
    try:
        print(len(os.read(watch, 1 << 16)), "bytes")
    except BlockingIOError:
        print("nothing")
"""


@pytest.mark.parametrize("tier", _JAILS)
async def test_locks_and_watches_of_the_hosts_files_are_a_sessions_own_unless_it_is_said(tier: Tier) -> None:
    async with jailed(tier) as acme, jailed(tier) as evil:
        for each in (acme, evil):
            await each.files.write_text("hold.py", _HOLD)
        command = f"python3 hold.py {' '.join(_LOCKED)}"
        async with await acme.spawn(command, stdin=True) as holder:
            output = b""
            async for piece in holder.stdout:
                output += piece
                if output.endswith(b"end\n"):
                    break
            assert output == (b"True\nend\n" if tier == "namespaces" else b"False\nend\n")
            seen = (await evil.run(command)).stdout.split()
            await holder.close_stdin()
            watched = b"".join([piece async for piece in holder.stdout])
        taken = {*seen} & {*_LOCKED}
        if tier == "namespaces":
            assert acme.capabilities.unenforced == frozenset()
            assert taken == (set() if os.geteuid() == 0 else {"/dev/null"})
            assert watched == b"nothing\n"
        else:
            assert "locks" in acme.capabilities.unenforced
            assert taken == {*_LOCKED} - {"/proc/1/exe"}
        # On files of their own, commands have them.
        done = await acme.run(
            'touch own; flock -n own true && python3 -c \'import sqlite3; sqlite3.connect("d").execute("create table t (n)")\''
        )
        assert done.exit_code == 0, done


@pytest.mark.parametrize("tier", _JAILS)
async def test_numbers_of_the_hosts_processes(tier: Tier) -> None:
    async with jailed(tier) as shell:
        done = await shell.run(
            f"kill -0 {os.getpid()}; kill -0 4194303; cat /proc/{os.getpid()}/stat; stat -c %n /proc/self"
        )
    if tier == "namespaces":
        assert "No such file or directory" in done.stderr
        assert done.stdout == "/proc/self\n"
    else:  # told apart from one that does not exist, and no more
        assert "Operation not permitted" in done.stderr
        assert "No such process" in done.stderr
        assert "stat: Permission denied" in done.stderr


async def test_bounds_hold_in_a_host_with_more_than_a_thousand_descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2_000)), hard))
    with ExitStack() as files:
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1_024):  # FD_SETSIZE, select(2)
            files.enter_context(Path(os.devnull).open("rb"))
        async with jailed(limits=ShellLimits(memory_mb=200)) as shell:
            done = await shell.run(
                "for i in 1 2 3; do python3 -c 'b = bytearray(90 << 20); import time; time.sleep(60)' & done; wait"
            )
        assert done.exit_code == 137
        assert "200 MB of memory together" in done.stderr


@pytest.mark.parametrize(
    "tier",
    [
        "namespaces",
        pytest.param(
            "landlock", marks=pytest.mark.matrix("the gate tries the same bounds in this tier, one after the other")
        ),
    ],
)
@pytest.mark.matrix("bounds of processes, disk and commands are in the gate one by one; all at once")
async def test_a_fork_bomb_a_full_disk_and_30_hung_commands_harm_no_other_session(
    tier: Tier, warm_deno: DenoSandbox
) -> None:
    files = [Mount("/workspace", Scratch(bytes=5_000_000, files=100))]
    limits = ShellLimits(processes=30, commands=30)
    accepting = replace(limits, tier=tier, accept_unenforced={"disk", "locks", "processes"})
    async with (
        Corral(sandbox=warm_deno, check=False) as corral,
        corral.session(shell=accepting) as good,
        jailed(tier, files=files, limits=limits) as bombed,
        jailed(tier, files=files, limits=limits) as filled,
        jailed(tier, files=files, limits=limits) as held,
        anyio.create_task_group() as tasks,
    ):

        async def begin(shell: Shell, command: str, *, task_status: TaskStatus[None]) -> None:
            async with await shell.spawn(f"echo begun; {command}; sleep 1000") as process:
                assert await anext(aiter(process.stdout)) == b"begun\n"
                task_status.started()
                await anyio.sleep_forever()

        with anyio.fail_after(LIMIT_SECONDS):
            for _ in range(30):
                await tasks.start(begin, held, "trap '' TERM INT")
            await tasks.start(begin, bombed, ":(){ :|:& };:")
            await tasks.start(begin, filled, "while head -c 3000000 /dev/zero >> full; do :; done 2>/dev/null")
            assert (await good.shell.run("seq 1 1000 | tail -1")).stdout == "1000\n"
            assert (await good.shell.run("head -c 4000000 /dev/zero > f; stat -c %s f")).stdout == "4000000\n"
            assert (await good.execute("return 6 * 7")).value == 42
            with pytest.raises(ShellError, match="30 commands are running"):
                await held.run("true")
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("tier", _JAILS)
async def test_nothing_is_left_of_a_tree_that_resists(tier: Tier) -> None:
    """By sessions and groups of its own, double forks, ignored signals, and processes that fork as they are ended."""
    program = """
import os, signal, sys
for number in range(1, 32):
    if number not in (9, 17, 19):
        signal.signal(number, signal.SIG_IGN)
print("ready", flush=True)
while True:  # always another process, whose parent has ended
    if os.fork():
        os._exit(0)
    os.setsid()
"""
    async with jailed(tier) as shell:
        await shell.files.write_text("resist.py", program)
        command = (
            "mkfifo held; exec 3<>held; trap '' TERM HUP INT QUIT; for i in 1 2 3; do python3 resist.py & done; "
            "(setsid setsid sleep 1000 &); sleep 1000"
        )
        async with await shell.spawn(command) as process:
            output = b""
            async for piece in process.stdout:
                output += piece
                if output.count(b"ready\n") == 3:
                    break
        # Whoever had it open for writing is gone, so that reading ends.
        done = await shell.run("(: > held &) ; cat held; echo end", timeout_seconds=LIMIT_SECONDS)
        assert done.stdout == "end\n"


async def test_a_jail_without_namespaces_says_what_it_does_not_hold(warm_deno: DenoSandbox) -> None:
    own_user = os.geteuid() == 0
    names = "disk and locks" if own_user else "disk and locks and processes"
    accepted = ("disk", "locks") if own_user else ("disk", "locks", "processes")
    refused = f"^a shell in the tier 'landlock' does not enforce {names} on this system; use one with user namespaces "
    with pytest.raises(LimitNotEnforceable, match=refused) as said:
        async with JailedShell(limits=ShellLimits(tier="landlock")):
            pass
    assert f"ShellLimits(accept_unenforced={{{', '.join(map(repr, accepted))}}})" in str(said.value)
    async with JailedShell(limits=ShellLimits(tier="landlock", accept_unenforced=accepted)) as shell:
        assert shell.capabilities.unenforced == {*accepted}
        assert "not limited: disk, locks" in shell.description
        home = (await shell.run("pwd")).stdout.strip()
        assert f"working directory {home}." in shell.description
        # Both paths of a file are the same one for the host.
        await shell.files.write_text("/workspace/deep/a", "1")
        assert await shell.files.read_text(f"{home}/deep/a") == "1"
        assert (await shell.run("cat a", cwd="/workspace/deep")).stdout == "1"
        assert (await shell.run("cat a", cwd=f"{home}/deep")).stdout == "1"
        assert (await shell.run("echo $TMPDIR > $TMPDIR/x", cwd="/tmp")).exit_code == 0
        assert await shell.files.read_text("/tmp/x") != ""
    refusals: dict[Tier, ShellLimits] = {
        "namespaces": ShellLimits(tier="landlock"),
        "landlock": ShellLimits(tier="landlock", accept_unenforced={"processes"}),
    }
    for required, limits in refusals.items():
        async with Corral(sandbox=warm_deno, containment=required, check=False) as opened:
            with pytest.raises((StartFailed, LimitNotEnforceable), match=r"required tier|disk"):
                async with opened.session(shell=limits):
                    pass
    with pytest.raises(ConfigError, match="LocalShell"):
        ShellLimits(tier="none")
    with pytest.raises(ConfigError, match="takes 'disk', 'locks' or 'processes'"):
        ShellLimits(accept_unenforced={"memory_mb"})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_where_namespaces_do_not_work_the_next_tier_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.jail.commands.bubblewrap", lambda: None)
    with pytest.raises(LimitNotEnforceable, match=r"tier 'landlock'.*namespaces: bubblewrap is not installed"):
        async with JailedShell():
            pass
    async with JailedShell(limits=ShellLimits(accept_unenforced={"disk", "locks", "processes"})) as shell:
        assert shell.capabilities.containment == "landlock"
        assert (await shell.run("echo $HOME")).exit_code == 0


async def test_a_network_for_commands_needs_namespaces() -> None:
    network = Network(allow=["https://api.example.com"])
    limits = ShellLimits(tier="landlock", accept_unenforced={"disk", "locks", "processes"})
    with pytest.raises(StartFailed, match="tier 'landlock' have no network"):
        async with JailedShell(limits=limits, network=network):
            pass


@pytest.mark.parametrize("tier", _BOTH)
async def test_nothing_is_left_when_a_supervisor_or_the_launcher_is_killed(tier: Tier) -> None:
    async with jailed(tier) as shell, jailed(tier) as other:
        for victim in ("supervisor", "launcher"):
            await shell.files.delete("held")
            command = "mkfifo held; exec 3<>held; trap '' TERM; (setsid sleep 1000 &); echo ready; sleep 1000"
            process = await shell.spawn(command)
            assert await anext(aiter(process.stdout)) == b"ready\n"
            if victim == "launcher":
                launcher = shell._launcher._process  # pyright: ignore[reportPrivateUsage]
                assert launcher is not None
                launcher.kill()
            else:
                assert process.pid is not None
                os.kill(process.pid, signal.SIGKILL)
            with anyio.fail_after(LIMIT_SECONDS):
                assert await process.wait() == 137
                assert (await other.run("true")).exit_code == 0
                # Reading ends once nobody has it open for writing any more.
                assert (await shell.run("(: > held &) ; cat held; echo end")).stdout == "end\n"
            await process.aclose()


async def test_a_directory_of_the_host_is_for_reading_unless_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    files = [Mount("/workspace"), Mount("/in", Directory(tmp_path))]
    limits = ShellLimits(processes=20)
    async with jailed(files=files, limits=limits) as shell:
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
        done = await shell.run("echo x = 1 > module.py; python3 -c 'import module'; ls")
        assert done.stdout == "module.py\n", "stale bytecode would hide an edit within a second"
        process = await shell.spawn("sleep 1000")
    assert await process.wait() == 137
    with pytest.raises(ConfigError, match="async with"):
        await shell.run("true")
    with pytest.raises(ConfigError, match="positive"):
        ShellLimits(processes=0)
    with pytest.raises(ShellError, match="file"):
        async with JailedShell() as shell:
            await shell.run(f": {'x' * 200_000}")


async def test_a_command_starts_while_the_user_of_the_host_sends_many_descriptors(tmp_path: Path) -> None:
    """The kernel counts those of all processes of a user, against the limit of files of whoever sends one more."""
    sending, receiving = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with sending, receiving, (tmp_path / "file").open("wb") as file:
        socket.send_fds(sending, [b"x"], [file.fileno()] * 200)
        socket.send_fds(sending, [b"x"], [file.fileno()] * 200)
        async with jailed("landlock", files=[Mount("/workspace"), Mount("/in", Directory(tmp_path))]) as shell:
            assert (await shell.run("ulimit -n; echo started")).stdout == "256\nstarted\n"
