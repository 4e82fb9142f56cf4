"""`MemoryShell`, held to the public suites, and to its bounds."""

from __future__ import annotations

import getpass
import os
import signal
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest
import trio

from corral.errors import ConfigError, FileError, ShellError, ShellLost
from corral.shells import MemoryShell, Shell, ShellSandbox, memory
from corral.testing import FilesSuite, ShellSuite
from tests.processes import descendants, descriptors, stop
from tests.shells.shared import SharedShell
from tests.until import until

pytestmark = pytest.mark.anyio


class _Memory(SharedShell):
    @asynccontextmanager
    async def fresh_shell(self) -> AsyncGenerator[Shell]:
        async with MemoryShell() as shell:
            yield shell


@pytest.fixture(scope="module", autouse=True)
async def opened(anyio_backend: object) -> AsyncGenerator[None]:
    async with _Memory.shared():
        yield


class TestCommands(_Memory, ShellSuite):
    pass


class TestFiles(_Memory, FilesSuite):
    @pytest.mark.matrix("so many files are made in a jail; here their bound is met, which takes seconds")
    async def test_10000_files(self) -> None:
        await super().test_10000_files()


READERS = (
    "cat {0}; head {0}; tac {0}; od -c {0}; strings {0}; wc {0}; sed p {0}; awk 1 {0}; grep . {0}; rg . {0}; xxd {0}",
    "source {0}; . {0}; bash {0}; mapfile a < {0}; echo ${{a[@]}}; echo $(<{0}); read x < {0}; echo $x; while read x; do echo $x; done < {0}",
    "ln -s {0} link; cat link; ln {0} hard; cat hard; cp {0} copied; cat copied; mv {0} moved; cat moved; readlink -f link",
    "tar cf a.tar {0}; tar xOf a.tar; zip a {0}; gzip -c {0}; base64 {0}; patch < {0}; iconv {0}; split {0}; sort {0}; paste {0}",
    "cd $(dirname {0}); ls -la; find / -name secret.txt; find $(dirname {0}); tree /; du -a /; stat {0}; file {0}; glob '{0}'",
    "cat ../../../../../../../..{0}; cat /proc/1/root{0} /proc/self/root{0} /proc/self/cwd/x /dev/fd/../..{0} //{0} /./{0}",
    "curl file://{0}; wget file://{0}; http file://{0}; openssl enc -in {0}; vi {0}; dotenv -f {0}; csv {0}; template {0}",
    "mount -o bind / /mnt; chroot / cat {0}; sudo cat {0}; nohup cat {0}; busybox cat {0}; parallel cat ::: {0}; make -f {0}",
)


async def test_no_file_of_the_host_can_be_read_or_written(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the-host-has-this\n")
    async with MemoryShell() as shell:
        for reader in READERS:
            done = await shell.run(reader.format(secret))
            assert "the-host-has-this" not in done.stdout + done.stderr, reader
        assert await shell.files.read_text(str(secret)) is None
        assert await shell.files.read_text(f"../../../../..{secret}") is None
        await shell.run(
            f"mkdir -p {tmp_path}; echo changed > {secret}; rm -rf {tmp_path}; mkdir -p {tmp_path}; touch {tmp_path}/new"
        )
        await shell.files.write_text(f"{tmp_path}/other", "x")
        await shell.files.delete(str(tmp_path))
    assert [each.name for each in tmp_path.iterdir()] == ["secret.txt"]
    assert secret.read_text() == "the-host-has-this\n"


async def test_nothing_of_the_process_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORRAL_SECRET_OF_HOST", "the-host-has-this")
    async with MemoryShell(env={"BASHKIT_ALLOW_INPROCESS_SQLITE": "1", "BASH_ENV": "/workspace/first"}) as shell:
        await shell.files.write_text("first", "echo first\n")
        seen = await shell.run(
            "env; export -p; set; printenv; declare -p; cat /proc/*/environ /proc/self/maps; ps; ls /proc /sys"
        )
        assert "the-host-has-this" not in seen.stdout + seen.stderr
        assert not {
            name
            for name in ("pytest", str(os.getpid()), getpass.getuser(), socket.gethostname())
            if name in seen.stdout
        }
        done = await shell.run("for c in git python3 node sqlite3 gcc ssh jq yq; do $c --version; echo $?; done")
        assert done.stdout.split() == ["127"] * 8, done
        assert (await shell.run("kill -9 -1; kill -9 1; pkill python; echo survived")).stdout in {"survived\n", ""}


async def test_no_network_is_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = server.getsockname()[1]
        async with MemoryShell() as shell:
            for attempt in (
                f"curl -sS http://127.0.0.1:{port}; wget -O- http://127.0.0.1:{port}; http GET http://localhost:{port}",
                f"exec 3<>/dev/tcp/127.0.0.1/{port}; echo x >&3; echo x > /dev/udp/127.0.0.1/{port}; nc 127.0.0.1 {port}",
                f"openssl s_client -connect 127.0.0.1:{port}; retry -n 1 curl http://127.0.0.1:{port}; busybox wget http://127.0.0.1:{port}",
            ):
                await shell.run(attempt)
            with pytest.raises(BlockingIOError):
                server.accept()


@pytest.mark.parametrize(
    "command",
    [
        "while :; do :; done",
        pytest.param("x=a; while :; do x=$x$x; done", marks=pytest.mark.matrix("awk doubles a text in the gate")),
        "f() { f | f; }; f; f() { f; }; f",
        pytest.param(
            "f() { f | f & }; f; f() { f; }; f",
            marks=pytest.mark.matrix("the same is said of calls in the foreground, which takes no seconds"),
        ),
        pytest.param(
            "echo {1..100000000}", marks=pytest.mark.matrix("the size of a text is bounded in the gate by printf")
        ),
        "printf %1000000000d 1",
        "awk 'BEGIN { x = \"a\"; while (1) x = x x }'",
        "eval \"$(printf '(%.0s' $(seq 1 5000))\"",
        "head -c 9000000 /dev/zero > a; cat a a a a a a a a a a a a > b",
        "echo 'unfinished",
    ],
)
async def test_bounds_end_a_command_and_the_shell_goes_on(command: str) -> None:
    async with MemoryShell(command_steps=3_000) as shell:
        done = await shell.run(command)
        assert done.exit_code not in {0, None}, done
        assert done.stderr
        assert (await shell.run("echo next")).stdout == "next\n"


async def test_output_that_is_left_out_is_said() -> None:
    async with MemoryShell() as shell:
        await shell.files.write_text("large", "x" * 3_000_000)
        done = await shell.run("cat large", output_bytes=5_000_000)
        assert (len(done.stdout), done.stderr) == (1 << 20, "bash: output over 1 MiB was left out\n")
        assert (await shell.run("cat large | wc -c")).stdout.strip() == "3000000"
        assert not (await shell.run("cat large > copy; wc -c < copy")).stderr


async def test_time_and_number_of_commands_are_bounded() -> None:
    async with MemoryShell(commands=2) as shell:
        async with await shell.spawn("sleep 100"), await shell.spawn("sleep 100"):
            with pytest.raises(ShellError, match="2 commands are already running"):
                await shell.run("true")
        assert (await shell.run("echo free")).stdout == "free\n"
    async with MemoryShell(command_seconds=0.2) as shell, await shell.spawn("sleep 100") as process:
        assert await process.wait() != 0
    with pytest.raises(ConfigError, match="positive"):
        MemoryShell(commands=0)


async def test_a_cancelled_command_does_nothing_more() -> None:
    async with MemoryShell() as shell:
        async with await shell.spawn("echo ready; while :; do echo x >> log; sleep 0.01; done & sleep 100") as process:
            assert await anext(aiter(process.stdout)) == b"ready\n"
        same = "before=$(cat log | wc -c); sleep 0.1; [ $before = $(cat log | wc -c) ] && echo same"
        assert (await shell.run(f"touch log; {same}")).stdout == "same\n"
        await shell.spawn("sleep 100")
    async with MemoryShell() as shell:
        assert await shell.files.list() == []


async def test_files_have_bounds() -> None:
    async with MemoryShell() as shell:
        with pytest.raises(FileError, match="10000000 bytes"):
            await shell.files.write_bytes("large", bytes(10_000_001))
        for number in range(10):
            await shell.files.write_bytes(f"{number}", bytes(9_999_000))
        with pytest.raises(FileError, match="full"):
            await shell.files.write_bytes("one more", bytes(9_999_000))
        for path in ("/", "..", "/workspace", "/workspace/", "../workspace"):
            with pytest.raises(FileError, match="cannot be deleted"):
                await shell.files.delete(path)


OVERFLOWS = ("time " * 4_000 + ":", "echo '" + "(" * 60_000 + "1" + ")" * 60_000 + "' | bc")
"""Commands of which the library's native stack has not room enough."""


@pytest.mark.parametrize(
    ("command", "contained"),
    [
        (OVERFLOWS[0], True),
        *(
            pytest.param(
                *case, marks=pytest.mark.matrix("the stack overflows in the gate by another command, contained")
            )
            for case in ((OVERFLOWS[1], True), (OVERFLOWS[0], False))
        ),
    ],
)
async def test_a_crash_ends_the_commands_of_its_shell_and_the_files_stay(
    command: str, contained: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "can_limit", contained)  # as on macOS
    async with MemoryShell() as shell, MemoryShell() as other:
        await shell.files.write_text("a/written", "by the host\n")
        await shell.files.write_text("gone", "")
        await shell.run(
            "chmod 750 a; ln -s a/written link; echo made > made; chmod 755 made; rm gone; mkfifo pipe", check=True
        )
        before = await shell.run("ls -l . a | sed 's/ 20.*:.. / /; /pipe/d'; cat link made")
        async with await shell.spawn("echo lost > made; sleep 100") as beside, await other.spawn("sleep 0.1"):
            crashed = await shell.run(command)
            assert (crashed.exit_code, crashed.timed_out) == (139, False)
            assert "the interpreter crashed (SIGSEGV)" in crashed.stderr
            assert await beside.wait() == 139
            assert beside.reason is not None
        assert await shell.run("ls -l . a | sed 's/ 20.*:.. / /'; cat link made") == before
        assert (await other.run("echo on")).stdout == "on\n"


def _interpreters(before: dict[int, str]) -> list[int]:
    """Numbers of the processes of interpreters that were started since."""
    started = {pid: Path(f"/proc/{pid}/status").read_text() for pid in descendants().keys() - before.keys()}
    return [pid for pid, status in started.items() if "Seccomp:\t2" in status]


async def test_the_process_is_jailed_and_ends_with_its_shell() -> None:
    before, open_before = descendants(), descriptors()
    async with MemoryShell() as shell:
        await shell.run("true")
        (pid,) = _interpreters(before)
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        assert (status["NoNewPrivs"], int(status["CapEff"], 16), int(status["CapBnd"], 16) and os.geteuid()) == (
            "1",
            0,
            0,
        )
        assert status["Uid"].split()[0] != "0"
        assert str(1 << 30) in Path(f"/proc/{pid}/limits").read_text().split("Max data size")[1].splitlines()[0]
    assert not _interpreters(before)
    assert descriptors() <= open_before  # an earlier test's may close meanwhile


async def test_a_command_that_cannot_be_cancelled_ends_with_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_GRACE_SECONDS", 0.1)
    before = descendants()
    async with MemoryShell() as shell:
        process = await shell.spawn("echo kept > file; sleep 100")
        await shell.run("until test -s file; do sleep 0.01; done", check=True)
        (pid,) = _interpreters(before)
        stop(pid)  # as if it computed
        await process.aclose()
        await until(lambda: not Path(f"/proc/{pid}").exists())
        with pytest.raises(ShellLost):
            await process.wait()
        assert await shell.files.read_text("file") == "kept\n"
        (pid,) = _interpreters(before)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not Path(f"/proc/{pid}").exists())
        assert (await shell.run("cat file")).stdout == "kept\n"


async def test_a_write_that_was_cancelled_is_not_forgotten() -> None:
    before = descendants()
    async with MemoryShell() as shell:
        await shell.run("true")
        (pid,) = _interpreters(before)
        stop(pid)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shell.files.write_text, "file", "written")
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        os.kill(pid, signal.SIGCONT)
        await shell.run("until test -s file; do sleep 0.01; done", check=True)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not Path(f"/proc/{pid}").exists())
        assert await shell.files.read_text("file") == "written"


async def test_more_files_than_the_library_allows_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_KEPT_FILES", 5)  # three of them are folders
    async with MemoryShell() as shell:
        await shell.run("echo 1 > 1; echo 2 > 2", check=True)
        done = await shell.run("echo 3 > 3")
        assert done.exit_code == 137
        assert "more files than the library allows" in done.stderr


NONSENSE = {
    "sizes": "b'\\xff' * 8",
    "no JSON": "HEADER.pack(4, 0) + b'nope'",
    "depth": "HEADER.pack(60_000, 0) + b'[' * 60_000",
    "no message": "HEADER.pack(2, 0) + b'[]'",
    "values": "HEADER.pack(11, 0) + b'{\"size\":[]}'",
    "no end": "(HEADER.pack(2, 0) + b'{}') * 30",
    "nothing": "b''",
}


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(
            reply,
            id=name,
            marks=[pytest.mark.matrix("three kinds of nonsense are in the gate; others, by the same reader")]
            if name in ("no message", "values", "sizes", "nothing")
            else [],
        )
        for name, reply in NONSENSE.items()
    ],
)
async def test_a_process_that_answers_nonsense_is_ended(reply: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_KEPT_FILES", 20)
    monkeypatch.setattr(
        memory,
        "BOOT",
        "import os, socket, struct; HEADER = struct.Struct('>II'); os.write(1, b'corral shell\\n')\n"
        "control = socket.socket(fileno=0)\n"
        "while (received := socket.recv_fds(control, 1, 1))[0]:\n"
        f"    os.write(received[1][0], {reply}); os.close(received[1][0])\n",
    )
    before = descendants()
    async with MemoryShell() as shell:
        with pytest.raises(ShellLost, match="the interpreter was ended"):
            await shell.files.list()
        with suppress(ShellLost):
            assert (await shell.run("true")).exit_code == 137
            assert len(descendants().keys() - before.keys()) == 1  # the launcher


async def test_programs_are_refused() -> None:
    with pytest.raises(ConfigError, match="MemoryShell"):
        ShellSandbox(MemoryShell())


def test_another_event_loop_is_refused() -> None:
    async def main() -> None:
        async with MemoryShell() as shell:
            await shell.files.write_text("a", "x")
            await shell.run("true")

    with pytest.raises(ConfigError, match="only on asyncio"):
        trio.run(main)
