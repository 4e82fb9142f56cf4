"""Conformance suites of shells: commands, and files."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

import anyio

from corral.errors import CommandFailed, ConfigError, FileError
from corral.shells import FileInfo, Shell

__all__ = ["FilesSuite", "ShellSuite"]

E = TypeVar("E", bound=Exception)

_PATIENCE_SECONDS = 30.0


class _Suite:
    def shell(self) -> AbstractAsyncContextManager[Shell]:
        """Opens the shell to test, with an empty working directory."""
        raise NotImplementedError

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[Shell]:
        async with self.shell() as shell:
            with anyio.fail_after(_PATIENCE_SECONDS):
                yield shell


class ShellSuite(_Suite):
    """Tests of commands that every shell has to pass. Implement `shell`; each test opens one.

    Tests of what `capabilities` denies expect that it is refused, or leave it out.
    """

    async def test_output_and_exit_code(self) -> None:
        async with self._opened() as shell:
            done = await shell.run("echo out; echo err >&2; exit 3")
            assert done.exit_code == 3
            assert not done.timed_out
            assert not done.truncated
            if shell.capabilities.separate_stderr:
                assert (done.stdout, done.stderr) == ("out\n", "err\n")
            else:
                assert (sorted(done.stdout.splitlines()), done.stderr) == (["err", "out"], "")
            assert (await shell.run("no-such-program-anywhere")).exit_code == 127
            assert (await shell.run("true")).exit_code == 0
            assert (await shell.run("echo 'größer ☃'")).stdout == "größer ☃\n"

    async def test_a_command_has_no_input_unless_given(self) -> None:
        async with self._opened() as shell:
            assert (await shell.run("cat; echo end")).stdout == "end\n"
            if not shell.capabilities.stdin:
                await _failure(shell.run("cat", input="x"), ConfigError)
                return
            assert (await shell.run("cat; echo end", input="a\nb\n")).stdout == "a\nb\nend\n"
            assert (await shell.run("wc -c", input=b"\0\xff" * 300_000)).stdout.strip() == "600000"
            assert (await shell.run("echo unread", input="x" * 1_000_000)).stdout == "unread\n"

    async def test_environment_and_folder(self) -> None:
        async with self._opened() as shell:
            done = await shell.run('echo "$GREETING"', env={"GREETING": "a 'b' \"c\"\n$d"})
            assert done.stdout == "a 'b' \"c\"\n$d\n"
            assert (await shell.run('echo "[$GREETING]"')).stdout == "[]\n"
            await shell.files.make_directory("deep/er")
            home = (await shell.run("pwd")).stdout.strip()
            assert (await shell.run("pwd", cwd="deep/er")).stdout.strip() == f"{home}/deep/er"
            assert (await shell.run("pwd", cwd=f"{home}/deep")).stdout.strip() == f"{home}/deep"
            assert (await shell.run("cd deep; pwd")).stdout.strip() == f"{home}/deep"
            assert (await shell.run("pwd")).stdout.strip() == home

    async def test_a_folder_that_is_not_there_is_an_error_before_the_start(self) -> None:
        async with self._opened() as shell:
            for cwd in ("nowhere", "/no/such/folder"):
                await _fails(shell.run("echo started > proof", cwd=cwd), cwd)
            assert await shell.files.stat("proof") is None

    async def test_a_nul_is_refused(self) -> None:
        async with self._opened() as shell:
            for command, env in (("echo a\0b", {}), ("true", {"A": "a\0b"}), ("true", {"A=B": "c"})):
                await _failure(shell.run(command, env=env), ConfigError)

    async def test_a_time_out_keeps_what_was_written(self) -> None:
        async with self._opened() as shell:
            done = await shell.run("echo before; sleep 1000; echo after", timeout_seconds=1.0)
            assert done.timed_out
            assert done.exit_code is None
            assert done.stdout == ("before\n" if shell.capabilities.streaming else done.stdout)
            assert "after" not in done.stdout
            assert (await shell.run("echo alive")).stdout == "alive\n"

    async def test_nothing_is_left_of_a_command_that_is_ended(self) -> None:
        async with self._opened() as shell:
            if not shell.capabilities.real_processes:
                return
            await shell.run("mkfifo held")
            async with await shell.spawn(
                "exec 3<>held; trap '' TERM HUP INT; (setsid sleep 1000 >&3 2>&3 &) ; echo ready; sleep 1000"
            ) as process:
                assert await anext(aiter(process.stdout)) == b"ready\n"
            # Whoever had it open for writing is gone, so that reading ends.
            assert (await shell.run("(: > held &) ; cat held; echo end")).stdout == "end\n"

    async def test_cancelling_ends_a_command(self) -> None:
        async with self._opened() as shell:
            with anyio.move_on_after(0.5) as scope:
                await shell.run("sleep 1000", timeout_seconds=None)
            assert scope.cancelled_caught
            assert (await shell.run("echo next")).stdout == "next\n"

    async def test_a_signal_ends_a_command_with_128_and_its_number(self) -> None:
        async with self._opened() as shell:
            if shell.capabilities.real_processes:
                assert (await shell.run("kill -9 $$")).exit_code == 137
                assert (await shell.run("bash -c 'kill -TERM $$'; exit $?")).exit_code == 143

    async def test_long_output_is_cut_in_the_middle(self) -> None:
        async with self._opened() as shell:
            pieces: list[bytes] = []
            done = await shell.run("seq 1 30000", output_bytes=1000, on_output=lambda _, data: pieces.append(data))
            assert done.truncated
            assert done.stdout.startswith("1\n2\n")
            assert done.stdout.endswith("29999\n30000\n")
            assert len(done.stdout) < 1100
            assert b"".join(pieces) == b"".join(b"%d\n" % number for number in range(1, 30_001))
            assert (await shell.run("seq 1 3", output_bytes=6)).stdout == "1\n2\n3\n"
            assert (await shell.run("seq 1 3", output_bytes=0)).truncated

    async def test_output_that_is_no_text(self) -> None:
        async with self._opened() as shell:
            assert (await shell.run(r"printf 'a\xffb'")).stdout == "a\ufffdb"
            if shell.capabilities.binary_output:
                async with await shell.spawn(r"printf '\x00\xff\xfe'") as process:
                    assert b"".join([piece async for piece in process.stdout]) == b"\0\xff\xfe"
                    assert await process.wait() == 0

    async def test_commands_at_the_same_time(self) -> None:
        async with self._opened() as shell:
            outputs: dict[int, str] = {}

            async def run(number: int) -> None:
                outputs[number] = (await shell.run(f"seq {number} {number + 500} | tail -1")).stdout

            async with anyio.create_task_group() as tasks:
                for number in range(8):
                    tasks.start_soon(run, number)
            assert outputs == {number: f"{number + 500}\n" for number in range(8)}

    async def test_a_conversation(self) -> None:
        async with self._opened() as shell:
            if not (shell.capabilities.stdin and shell.capabilities.streaming):
                return
            async with await shell.spawn('while read line; do echo "got $line"; done; echo end', stdin=True) as process:
                output = aiter(process.stdout)
                await process.write(b"one\n")
                assert await anext(output) == b"got one\n"
                await process.write(b"two\n")
                assert await anext(output) == b"got two\n"
                await process.close_stdin()
                await process.close_stdin()
                assert b"".join([piece async for piece in output]) == b"end\n"
                assert await process.wait() == 0
                await process.kill()
                await process.kill()

    async def test_a_process_without_input_refuses_it(self) -> None:
        async with self._opened() as shell, await shell.spawn("true") as process:
            await _failure(process.write(b"x"), ConfigError)

    async def test_what_a_command_leaves_behind_does_not_hold_it(self) -> None:
        async with self._opened() as shell:
            if shell.capabilities.real_processes:
                assert (await shell.run("sleep 1000 & echo done")).stdout == "done\n"

    async def test_check_raises_for_another_exit_code(self) -> None:
        async with self._opened() as shell:
            assert (await shell.run("echo a", check=True)).stdout == "a\n"
            failure = await _failure(shell.run("echo reason >&2; exit 4", check=True), CommandFailed)
            assert failure.exit_code == 4
            assert "reason" in str(failure)

    async def test_an_error_of_on_output_is_the_callers(self) -> None:
        def fail(*_: object) -> None:
            raise LookupError("no")

        async with self._opened() as shell:
            await _failure(shell.run("echo first; sleep 1000", on_output=fail), LookupError)

    async def test_the_restricted_view_ends_nothing(self) -> None:
        async with self._opened() as shell:
            view = shell.restricted()
            await view.files.write_text("seen.txt", "x")
            await view.aclose()
            assert (await view.run("cat seen.txt")).stdout == "x"
            assert view.capabilities == shell.capabilities
            assert view.description == shell.description

    async def test_quoting_and_long_commands(self) -> None:
        async with self._opened() as shell:
            assert (await shell.run("printf '%s|' \"a b\" 'c\"d' e\\ f\nprintf x")).stdout == 'a b|c"d|e f|x'
            assert (await shell.run(f": {'y' * 60_000}; echo ok")).stdout == "ok\n"
            assert (await shell.run("cat <<'EOF'\n$HOME `x`\nEOF")).stdout == "$HOME `x`\n"


class FilesSuite(_Suite):
    """Tests of files that every shell has to pass. Implement `shell`; each test opens one."""

    async def test_bytes_text_and_streams(self) -> None:
        async with self._opened() as shell:
            files = shell.files
            data = bytes(range(256)) * 1000
            await files.write_binary("data.bin", data)
            assert await files.read_binary("data.bin") == data
            stream = await files.read_stream("data.bin")
            assert stream is not None
            assert b"".join([piece async for piece in stream]) == data
            await files.write_text("text.txt", "größer\n☃\n")
            assert await files.read_text("text.txt") == "größer\n☃\n"
            await files.write_text("latin.txt", "größer", encoding="latin-1")
            assert await files.read_binary("latin.txt") == "größer".encode("latin-1")

            async def pieces() -> AsyncGenerator[bytes]:
                yield b"one "
                yield b"two"

            await files.write_stream("deep/stream.txt", pieces())
            assert await files.read_text("deep/stream.txt") == "one two"
            await files.write_text("empty", "")
            assert await files.read_binary("empty") == b""

    async def test_what_is_not_there(self) -> None:
        async with self._opened() as shell:
            files = shell.files
            assert await files.read_binary("none") is None
            assert await files.read_text("none/at/all") is None
            assert await files.read_stream("none") is None
            assert await files.stat("none") is None
            assert await files.list("none") is None
            assert await files.delete("none") is False

    async def test_writing_makes_folders_and_replaces(self) -> None:
        async with self._opened() as shell:
            files = shell.files
            await files.write_text("a/b/c.txt", "a long first text")
            await files.write_text("a/b/c.txt", "second")
            assert await files.read_text("a/b/c.txt") == "second"
            await _fails(files.write_text("a/b", "x"), "a/b")
            await _fails(files.read_text("a/b"), "a/b")
            await _fails(files.write_text("a/b/c.txt/d", "x"), "a/b/c.txt/d")
            await files.make_directory("a/b")
            assert await files.read_text("a/b/c.txt") == "second"

    async def test_ranges_of_lines(self) -> None:
        async with self._opened() as shell:
            files = shell.files
            await files.write_text("lines", "1\n2\n3\n4")
            assert await files.read_text("lines", lines=(2, 3)) == "2\n3\n"
            assert await files.read_text("lines", lines=(3, None)) == "3\n4"
            assert await files.read_text("lines", lines=(1, 1)) == "1\n"
            assert await files.read_text("lines", lines=(9, 12)) == ""

    async def test_bounds_and_encodings(self) -> None:
        async with self._opened() as shell:
            files = shell.files
            await files.write_binary("bytes", b"\xff" * 100)
            await _fails(files.read_binary("bytes", max_bytes=99), "bytes")
            assert await files.read_binary("bytes", max_bytes=100) == b"\xff" * 100
            await _fails(files.read_text("bytes"), "bytes")
            await _fails(files.read_text("bytes", encoding="no-such"), "bytes")
            await _fails(files.write_text("x", "☃", encoding="ascii"), "x")
            await _failure(files.read_binary("a\0b"), FileError)

    async def test_lists(self) -> None:
        async with self._opened() as shell:
            files = shell.files
            assert await files.list() == []
            for name in ("b.txt", "a/one", "a/deep/two"):
                await files.write_text(name, name)
            await files.make_directory("empty")
            assert [(each.path, each.kind) for each in await files.list() or ()] == [
                ("a", "directory"),
                ("b.txt", "file"),
                ("empty", "directory"),
            ]
            found = await files.list("a", recursive=True)
            assert [each.path for each in found or ()] == ["deep", "deep/two", "one"]
            assert await files.list("empty") == []
            await _fails(files.list("b.txt"), "b.txt")
            await _fails(files.list("", recursive=True, max_entries=3), "3")

    async def test_stat(self) -> None:
        async with self._opened() as shell:
            files = shell.files
            await files.write_text("folder/file", "12345")
            assert await files.stat("folder/file") == FileInfo("folder/file", "file", 5)
            found = await files.stat("folder")
            assert found is not None
            assert found.kind == "directory"

    async def test_delete(self) -> None:
        async with self._opened() as shell:
            files = shell.files
            await files.write_text("tree/a/b", "x")
            await files.write_text("tree/c", "x")
            assert await files.delete("tree/c") is True
            assert await files.delete("tree") is True
            assert await files.stat("tree") is None
            assert await files.delete("tree") is False
            for path in ("", ".", "./", "/", ".."):
                await _failure(files.delete(path), FileError)

    async def test_links(self) -> None:
        async with self._opened() as shell:
            files = shell.files
            await files.write_text("target", "text")
            if (await shell.run("ln -s target link")).exit_code != 0:
                assert not shell.capabilities.links
                return
            kinds = {each.path: each.kind for each in await files.list() or ()}
            assert kinds == {"target": "file", "link": "link"}
            if shell.capabilities.links:
                assert await files.read_text("link") == "text"
                assert await files.stat("link") == FileInfo("link", "file", 4)
            else:
                await _fails(files.read_text("link"), "link")
            assert await files.delete("link") is True
            assert await files.read_text("target") == "text"

    async def test_names_of_every_kind(self) -> None:
        async with self._opened() as shell:
            names = ["-dash", "größer", "a b", "it's", '"quoted"', "$HOME", "*", "#x", "a;b", "back\\slash"]
            if shell.capabilities.control_names:
                names.append("a\nb")
            else:
                await _failure(shell.files.write_text("names/a\nb", ""), FileError)
            for name in names:
                await shell.files.write_text(f"names/{name}", name)
            found = await shell.files.list("names")
            assert {each.path for each in found or ()} == set(names)
            for name in names:
                assert await shell.files.read_text(f"names/{name}") == name
                assert await shell.files.delete(f"names/{name}") is True

    async def test_commands_and_files_see_each_other(self) -> None:
        async with self._opened() as shell:
            await shell.files.write_text("from-host/a.txt", "host")
            done = await shell.run("cat from-host/a.txt; mkdir made; printf shell > made/b.txt; rm from-host/a.txt")
            assert done.stdout == "host", done
            assert await shell.files.read_text("made/b.txt") == "shell"
            assert await shell.files.stat("from-host/a.txt") is None

    async def test_many_files(self) -> None:
        async with self._opened() as shell:
            await shell.run("mkdir many; cd many; seq 1 2000 | while read n; do : > f$n; done", check=True)
            found = await shell.files.list("many")
            assert found is not None
            assert len(found) == 2000


async def _fails(work: Awaitable[object], word: str) -> None:
    """Finds a `FileError` with this word."""
    failure = await _failure(work, FileError)
    assert word in str(failure), failure


async def _failure(work: Awaitable[object], kind: type[E]) -> E:
    try:
        await work
    except kind as error:
        return error
    raise AssertionError(f"there was no {kind.__name__}")
