"""Conformance suites of shells: commands and files."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

import anyio

from corral.containment import ContainmentKind
from corral.errors import CommandFailed, ConfigError, FileError
from corral.shells import FileInfo, Shell, ShellCapabilities, StreamName
from corral.testing.cases import Cases

C = TypeVar("C", bound=Callable[..., Any])
E = TypeVar("E", bound=Exception)

_PREFIX = "test_"
_PATIENCE_SECONDS = 30.0
_DIFFERENCES = "_corral_differences"


class BehaviourSuite(Cases):
    """Base of the suites of shells. Implement `shell`."""

    def shell(self) -> AbstractAsyncContextManager[Shell]:
        """Opens the shell to test. Can return the same one for all tests, because they use different file names."""
        raise NotImplementedError

    def fresh_shell(self) -> AbstractAsyncContextManager[Shell]:
        """Opens an empty shell that the test may close. Implement it if `shell` always returns the same one."""
        return self.shell()

    @asynccontextmanager
    async def _provide(self, names: Sequence[str]) -> AsyncGenerator[Mapping[str, object]]:
        async with self._opened() as shell:
            yield dict.fromkeys(names, shell)

    @asynccontextmanager
    async def _opened(self, *, fresh: bool = False) -> AsyncGenerator[Shell]:
        async with self.fresh_shell() if fresh else self.shell() as shell:
            with anyio.fail_after(_PATIENCE_SECONDS):
                yield shell


def differs(**instead: str) -> Callable[[C], C]:
    """Describes, by capability, what a shell does in this case if it lacks that capability."""

    def mark(case: C) -> C:
        setattr(case, _DIFFERENCES, instead)
        return case

    return mark


def behaviours(suite: type[BehaviourSuite], capabilities: ShellCapabilities) -> dict[str, str]:
    """Returns the suite's cases as sentences, each with "yes" or the behaviour that these capabilities imply
    instead."""
    rows: dict[str, str] = {}
    for name, case in vars(suite).items():
        if name.startswith(_PREFIX):
            instead: Mapping[str, str] = getattr(case, _DIFFERENCES, {})
            sentence = name.removeprefix(_PREFIX).replace("_", " ").replace("time out", "time-out")
            rows[sentence] = next((text for lacks, text in instead.items() if not getattr(capabilities, lacks)), "yes")
    return rows


async def expect_file_error(work: Awaitable[object], word: str) -> None:
    """Expects a `FileError` whose reason is this word.

    Raises:
        AssertionError: it was not raised.
    """
    failure = await expect_failure(work, FileError)
    assert word in str(failure), failure


async def expect_failure(work: Awaitable[object], kind: type[E]) -> E:
    """Expects an exception, and returns it.

    Raises:
        AssertionError: it was not raised.
    """
    try:
        await work
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


# --- files --------------------------------------------------------------------------------------------------


class FilesSuite(BehaviourSuite):
    """Tests of files that every shell must pass. Implement `shell`, and `fresh_shell` if `shell` is always the same."""

    many_files: int = 10_001
    """Number of files in a large folder."""

    # Reading and writing

    async def test_bytes_are_exact(self, shell: Shell) -> None:
        data = bytes(range(256)) * 400
        await shell.files.write_bytes("data.bin", data)
        assert await shell.files.read_bytes("data.bin") == data

    async def test_an_empty_file(self, shell: Shell) -> None:
        await shell.files.write_text("empty-file", "")
        assert await shell.files.read_bytes("empty-file") == b""
        assert await shell.files.stat("empty-file") == FileInfo("empty-file", "file", 0)

    async def test_text_is_utf_8_with_line_ends_as_they_are(self, shell: Shell) -> None:
        await shell.files.write_text("text.txt", "größer\r\n☃\n\n𝄞")
        assert await shell.files.read_text("text.txt") == "größer\r\n☃\n\n𝄞"

    async def test_another_encoding(self, shell: Shell) -> None:
        await shell.files.write_text("latin.txt", "größer", encoding="latin-1")
        assert await shell.files.read_bytes("latin.txt") == "größer".encode("latin-1")
        assert await shell.files.read_text("latin.txt", encoding="latin-1") == "größer"

    async def test_what_is_no_text_in_the_encoding_is_an_error(self, shell: Shell) -> None:
        await shell.files.write_bytes("no-text", b"\xff")
        await expect_file_error(shell.files.read_text("no-text"), "no-text")
        await expect_file_error(shell.files.read_text("no-text", encoding="no-such"), "no-text")
        await expect_file_error(shell.files.write_text("snow", "☃", encoding="ascii"), "snow")
        assert await shell.files.stat("snow") is None

    async def test_a_file_is_read_as_a_stream(self, shell: Shell) -> None:
        await shell.files.write_bytes("read.bin", bytes(150_000))
        stream = await shell.files.read_stream("read.bin")
        assert stream is not None
        assert b"".join([piece async for piece in stream]) == bytes(150_000)

    async def test_a_file_is_written_from_a_stream(self, shell: Shell) -> None:
        async def pieces() -> AsyncGenerator[bytes]:
            yield b"one "
            yield b""
            yield b"two"

        await shell.files.write_stream("streamed/two.txt", pieces())
        assert await shell.files.read_text("streamed/two.txt") == "one two"

    async def test_reading_has_a_bound(self, shell: Shell) -> None:
        await shell.files.write_bytes("bounded", b"\xff" * 100)
        await expect_file_error(shell.files.read_bytes("bounded", max_bytes=99), "bounded")
        assert await shell.files.read_bytes("bounded", max_bytes=100) == b"\xff" * 100

    async def test_lines_are_counted_from_1_and_the_last_is_included(self, shell: Shell) -> None:
        await shell.files.write_text("lines", "1\n2\n3\n4")
        assert await shell.files.read_text("lines", lines=(2, 3)) == "2\n3\n"
        assert await shell.files.read_text("lines", lines=(1, 1)) == "1\n"
        assert await shell.files.read_text("lines", lines=(3, None)) == "3\n4"

    async def test_lines_past_the_end_are_none(self, shell: Shell) -> None:
        await shell.files.write_text("few", "1\n2")
        assert await shell.files.read_text("few", lines=(2, 99)) == "2"
        assert await shell.files.read_text("few", lines=(9, 12)) == ""

    async def test_what_is_not_there_is_not_read(self, shell: Shell) -> None:
        assert await shell.files.read_bytes("none") is None
        assert await shell.files.read_text("none/at/all", lines=(1, 2)) is None
        assert await shell.files.read_stream("none") is None

    async def test_writing_makes_folders(self, shell: Shell) -> None:
        await shell.files.write_text("a/b/c.txt", "text")
        assert await shell.files.read_text("a/b/c.txt") == "text"

    async def test_writing_replaces_the_whole_file(self, shell: Shell) -> None:
        await shell.files.write_text("replaced", "a long first text")
        await shell.files.write_text("replaced", "second")
        assert await shell.files.read_text("replaced") == "second"

    async def test_a_folder_is_neither_read_nor_written(self, shell: Shell) -> None:
        await shell.files.mkdir("folder/inner")
        await expect_file_error(shell.files.write_text("folder/inner", "x"), "folder/inner")
        await expect_file_error(shell.files.read_text("folder/inner"), "folder/inner")

    async def test_nothing_is_written_below_a_file(self, shell: Shell) -> None:
        await shell.files.write_text("leaf", "x")
        await expect_file_error(shell.files.write_text("leaf/d", "x"), "leaf/d")
        await expect_failure(shell.files.mkdir("leaf"), FileError)

    async def test_files_written_at_the_same_time(self, shell: Shell) -> None:
        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(shell.files.write_text, f"parallel/{number}", f"{number}" * 1000)
        entries = await shell.files.list("parallel")
        assert [(each.path, each.size) for each in entries or ()] == [(f"{number}", 1000) for number in range(4)]

    # Folders

    async def test_a_folder_that_is_there_stays(self, shell: Shell) -> None:
        await shell.files.write_text("kept/file", "x")
        await shell.files.mkdir("kept")
        assert await shell.files.read_text("kept/file") == "x"

    async def test_a_list_is_sorted_and_has_hidden_files(self) -> None:
        async with self._opened(fresh=True) as shell:
            assert await shell.files.list() == []
            for name in ("b.txt", "a/one", ".hidden"):
                await shell.files.write_text(name, name)
            assert await shell.files.list() == [
                FileInfo(".hidden", "file", 7),
                *[each for each in await shell.files.list() or () if each.path == "a" and each.kind == "directory"],
                FileInfo("b.txt", "file", 5),
            ]

    async def test_a_recursive_list_has_paths_from_its_folder(self, shell: Shell) -> None:
        for name in ("tree/one", "tree/deep/two", "tree/deep/er/three"):
            await shell.files.write_text(name, name)
        entries = await shell.files.list("tree", recursive=True)
        paths = ["deep", "deep/er", "deep/er/three", "deep/two", "one"]
        assert [each.path for each in entries or ()] == paths
        await expect_file_error(shell.files.list("tree", recursive=True, max_entries=4), "4")

    async def test_a_list_of_an_empty_folder_of_a_file_and_of_nothing(self, shell: Shell) -> None:
        await shell.files.mkdir("empty")
        await shell.files.write_text("listed.txt", "x")
        assert await shell.files.list("empty") == []
        await expect_file_error(shell.files.list("listed.txt"), "listed.txt")
        assert await shell.files.list("none") is None

    async def test_stat_has_kind_and_size(self, shell: Shell) -> None:
        await shell.files.write_text("seen/file", "12345")
        assert await shell.files.stat("seen/file") == FileInfo("seen/file", "file", 5)
        info = await shell.files.stat("seen")
        assert info is not None
        assert info.kind == "directory"
        assert await shell.files.stat("none") is None

    @differs(many_files="refused, with the bound")
    async def test_10000_files(self) -> None:
        async with self._opened(fresh=True) as shell:
            done = await shell.run(f"mkdir all; cd all; touch $(seq 1 {self.many_files})")
            entries = await shell.files.list("all", recursive=True)
            assert entries is not None
            if shell.capabilities.many_files:
                assert (len(entries), done.exit_code) == (self.many_files, 0)
            else:
                assert len(entries) < self.many_files
                assert done.exit_code != 0
                assert done.stderr

    # Deleting

    async def test_a_file_and_a_folder_with_all_in_it_are_deleted(self, shell: Shell) -> None:
        await shell.files.write_text("gone/a/b", "x")
        await shell.files.write_text("gone/c", "x")
        assert await shell.files.delete("gone/c") is True
        assert await shell.files.delete("gone") is True
        assert await shell.files.stat("gone") is None

    async def test_deleting_what_is_not_there_is_no_error(self, shell: Shell) -> None:
        assert await shell.files.delete("none") is False
        assert await shell.files.delete("none/at/all") is False

    async def test_the_working_directory_and_what_is_above_it_are_not_deleted(self, shell: Shell) -> None:
        for path in ("", ".", "./", "/", ".."):
            await expect_failure(shell.files.delete(path), FileError)

    # Links and other kinds

    async def test_links_are_listed_as_links(self, shell: Shell) -> None:
        await shell.run("mkdir -p links/to; cd links; echo x > to/file; ln -s to folder; ln -s nowhere lost")
        entries = await shell.files.list("links", recursive=True)
        kinds = {each.path: each.kind for each in entries or ()}
        assert kinds == {"folder": "link", "lost": "link", "to": "directory", "to/file": "file"}

    @differs(links="refused")
    async def test_links_are_followed(self, shell: Shell) -> None:
        await shell.files.write_text("target", "text")
        await shell.run("ln -s target link", check=True)
        if shell.capabilities.links:
            assert await shell.files.read_text("link") == "text"
            assert await shell.files.stat("link") == FileInfo("link", "file", 4)
        else:
            await expect_file_error(shell.files.read_text("link"), "link")

    @differs(links="refused")
    async def test_a_link_to_nothing_is_not_there(self, shell: Shell) -> None:
        await shell.run("ln -s nowhere dangling", check=True)
        if shell.capabilities.links:
            assert await shell.files.read_text("dangling") is None
            assert await shell.files.stat("dangling") is None
        else:
            await expect_file_error(shell.files.read_text("dangling"), "dangling")

    async def test_deleting_a_link_keeps_its_target(self, shell: Shell) -> None:
        await shell.run("mkdir linked; echo text > linked/file; ln -s linked to-folder", check=True)
        assert await shell.files.delete("to-folder") is True
        assert await shell.files.read_text("linked/file") == "text\n"

    @differs(real_processes="there are none")
    async def test_a_pipe_is_no_file_to_read(self, shell: Shell) -> None:
        if shell.capabilities.real_processes:
            await shell.run("mkfifo waiting", check=True)
            await expect_file_error(shell.files.read_bytes("waiting"), "waiting")
            info = await shell.files.stat("waiting")
            assert info is not None
            assert info.kind == "other"

    # Paths

    async def test_names_with_spaces_quotes_and_signs_of_bash(self, shell: Shell) -> None:
        names = ["-dash ☃", "it's $HOME", 'a "b"; *', "#back\\slash"]
        for name in [*names, "*"]:
            await shell.files.write_text(f"names/{name}", name)
        entries = await shell.files.list("names")
        assert {each.path for each in entries or ()} == {*names, "*"}
        assert [await shell.files.read_text(f"names/{name}") for name in names] == names
        assert await shell.files.delete("names/*") is True
        assert await shell.files.delete("names/*") is False

    @differs(control_names="refused")
    async def test_names_with_line_breaks(self, shell: Shell) -> None:
        if shell.capabilities.control_names:
            await shell.files.write_text("lined/a\nb", "x")
            assert [each.path for each in await shell.files.list("lined") or ()] == ["a\nb"]
            assert await shell.files.read_text("lined/a\nb") == "x"
        else:
            await expect_failure(shell.files.write_text("lined/a\nb", ""), FileError)

    async def test_a_nul_in_a_path_is_refused(self, shell: Shell) -> None:
        await expect_failure(shell.files.read_bytes("a\0b"), FileError)
        await expect_failure(shell.files.write_bytes("a\0b", b""), FileError)

    async def test_an_absolute_path_is_the_same_file(self, shell: Shell) -> None:
        home = (await shell.run("echo x > absolute; pwd")).stdout.strip()
        assert await shell.files.read_text(f"{home}/absolute") == "x\n"
        await shell.files.write_text(f"{home}/written/here", "y")
        assert await shell.files.read_text("written/here") == "y"

    async def test_a_path_may_have_dots(self, shell: Shell) -> None:
        await shell.files.write_text("dots/inner/file", "x")
        assert await shell.files.read_text("./dots/./inner/file") == "x"

    async def test_a_path_of_60_folders(self, shell: Shell) -> None:
        path = "d/" * 60 + "file"
        await shell.files.write_text(path, "x")
        assert await shell.files.read_text(path) == "x"
        assert await shell.files.delete("d") is True

    # With commands

    async def test_commands_see_files_that_were_written(self, shell: Shell) -> None:
        await shell.files.write_text("from-host/a.txt", "host")
        assert (await shell.run("cat from-host/a.txt; rm from-host/a.txt")).stdout == "host"
        assert await shell.files.stat("from-host/a.txt") is None

    async def test_files_that_commands_write_are_seen(self, shell: Shell) -> None:
        await shell.run("mkdir made; printf shell > made/b.txt", check=True)
        assert await shell.files.read_text("made/b.txt") == "shell"
        assert await shell.files.stat("made/b.txt") == FileInfo("made/b.txt", "file", 5)

    async def test_a_script_that_was_written_runs(self, shell: Shell) -> None:
        await shell.files.write_text("script.sh", 'echo "$0 $1"; exit 5\n')
        done = await shell.run("bash ./script.sh 'a b'")
        assert (done.exit_code, done.stdout) == (5, "./script.sh a b\n")


# --- commands -----------------------------------------------------------------------------------------------

_NO_PROCESSES = "there are no processes"
_NO_STDIN = "refused"
_NOT_SEEN = "not tested: its start is not seen"


class ShellSuite(BehaviourSuite):
    """Tests of commands that every shell must pass. Implement `shell`, and `fresh_shell` if `shell` is always the same.

    For features that `capabilities` denies, tests expect a refusal, or are skipped.
    """

    # Output

    @differs(separate_stderr="both are in `stdout`")
    async def test_output_and_errors_are_apart(self, shell: Shell) -> None:
        done = await shell.run("echo out; echo err >&2")
        if shell.capabilities.separate_stderr:
            assert (done.stdout, done.stderr) == ("out\n", "err\n")
        else:
            assert (sorted(done.stdout.splitlines()), done.stderr) == (["err", "out"], "")

    async def test_a_command_without_output_has_none(self, shell: Shell) -> None:
        done = await shell.run("true")
        assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
        assert not done.timed_out
        assert not done.truncated

    async def test_blank_lines_and_a_last_line_without_an_end_stay_as_they_are(self, shell: Shell) -> None:
        assert (await shell.run(r"printf '\n\nx\n\n'; printf end")).stdout == "\n\nx\n\nend"

    async def test_output_in_any_script(self, shell: Shell) -> None:
        assert (await shell.run("echo 'größer ☃ 𝄞 日本'")).stdout == "größer ☃ 𝄞 日本\n"

    async def test_characters_are_whole_where_pieces_of_output_meet(self, shell: Shell) -> None:
        done = await shell.run("printf '☃%.0s' $(seq 1 40000)", output_bytes=200_000)
        assert done.stdout == "☃" * 40_000

    async def test_output_that_is_no_text_has_replacement_characters(self, shell: Shell) -> None:
        assert (await shell.run(r"printf 'a\xffb'")).stdout == "a\ufffdb"

    @differs(binary_output="replaced, or without NUL")
    async def test_a_process_gives_bytes_exactly(self, shell: Shell) -> None:
        if shell.capabilities.binary_output:
            async with await shell.spawn(r"printf '\x00\xff\xfe\r\n'") as process:
                assert b"".join([piece async for piece in process.stdout]) == b"\0\xff\xfe\r\n"
                assert await process.wait() == 0

    async def test_both_outputs_may_be_long_at_the_same_time(self, shell: Shell) -> None:
        lines = "printf '%0500d\\n' $(seq 1 90)"
        done = await shell.run(f"{lines}; {lines} >&2", output_bytes=100_000)
        expected = "".join(f"{number:0500d}\n" for number in range(1, 91))
        assert done.stdout + done.stderr == expected * 2

    @differs(large_output="cut at 1 MiB; the errors say so")
    async def test_an_output_of_3_MB_is_whole(self, shell: Shell) -> None:  # noqa: N802
        await shell.run("printf '%01000d' $(seq 1 1500) > large.txt", check=True)
        done = await shell.run("cat large.txt large.txt", output_bytes=4_000_000)
        if shell.capabilities.large_output:
            assert (len(done.stdout), done.stderr) == (3_000_000, "")
        else:
            assert len(done.stdout) < 3_000_000
            assert "left out" in done.stderr

    async def test_a_long_output_is_cut_in_the_middle(self, shell: Shell) -> None:
        done = await shell.run("seq 1 2000", output_bytes=1000)
        assert done.truncated
        assert done.stdout.startswith("1\n2\n")
        assert done.stdout.endswith("1999\n2000\n")
        assert len(done.stdout) < 1100

    async def test_an_output_within_its_bound_is_whole(self, shell: Shell) -> None:
        done = await shell.run("seq 1 3", output_bytes=6)
        assert (done.stdout, done.truncated) == ("1\n2\n3\n", False)
        assert (await shell.run("seq 1 3", output_bytes=0)).truncated
        await expect_failure(shell.run("true", output_bytes=-1), ConfigError)

    async def test_on_output_gets_all_of_it_also_what_is_cut(self, shell: Shell) -> None:
        pieces: list[bytes] = []

        def keep(_: StreamName, data: bytes) -> None:
            pieces.append(data)

        await shell.run("seq 1 2000", output_bytes=1000, on_output=keep)
        assert b"".join(pieces) == b"".join(b"%d\n" % number for number in range(1, 2001))

    async def test_on_output_may_be_asynchronous_and_names_the_stream(self, shell: Shell) -> None:
        seen: set[StreamName] = set()

        def keep(name: StreamName, _: bytes) -> Awaitable[None]:
            seen.add(name)
            return anyio.lowlevel.checkpoint()

        await shell.run("echo a; echo b >&2", on_output=keep)
        assert seen == ({"stdout", "stderr"} if shell.capabilities.separate_stderr else {"stdout"})

    async def test_an_error_of_on_output_ends_the_command_and_is_the_callers(self, shell: Shell) -> None:
        def fail(*_: object) -> None:
            raise LookupError("no")

        await expect_failure(shell.run("echo first; sleep 1000", on_output=fail), LookupError)

    @differs(streaming="at its end")
    async def test_output_arrives_while_the_command_runs(self, shell: Shell) -> None:
        if shell.capabilities.streaming:
            async with await shell.spawn("echo ready; sleep 1000") as process:
                assert await anext(aiter(process.stdout)) == b"ready\n"

    @differs(streaming="at its end", partial_lines="with its line")
    async def test_the_start_of_a_line_arrives_before_its_end(self, shell: Shell) -> None:
        if shell.capabilities.streaming and shell.capabilities.partial_lines:
            async with await shell.spawn("printf 'name? '; sleep 1000") as process:
                assert await anext(aiter(process.stdout)) == b"name? "

    # Ends

    async def test_an_exit_code_is_the_commands(self, shell: Shell) -> None:
        assert (await shell.run("exit 3")).exit_code == 3
        assert (await shell.run("(exit 255)")).exit_code == 255

    async def test_a_program_that_is_not_there_is_127(self, shell: Shell) -> None:
        done = await shell.run("no-such-program-anywhere")
        assert done.exit_code == 127
        assert "no-such-program-anywhere" in done.stdout + done.stderr

    async def test_an_error_of_syntax_is_an_exit_code_and_a_text(self, shell: Shell) -> None:
        done = await shell.run("echo 'unfinished")
        assert done.exit_code not in {0, None}
        assert done.stdout + done.stderr

    @differs(real_processes=_NO_PROCESSES)
    async def test_a_signal_is_128_and_its_number(self, shell: Shell) -> None:
        if shell.capabilities.real_processes:
            assert (await shell.run("kill -9 $$")).exit_code == 137
            assert (await shell.run("bash -c 'kill -TERM $$'; exit $?")).exit_code == 143

    async def test_the_exit_code_can_be_asked_for_again(self, shell: Shell) -> None:
        async with await shell.spawn("exit 4") as process:
            assert [await process.wait() for _ in range(2)] == [4, 4]

    async def test_check_raises_for_another_exit_code_with_what_was_written(self, shell: Shell) -> None:
        assert (await shell.run("echo a", check=True)).stdout == "a\n"
        failure = await expect_failure(shell.run("echo reason >&2; exit 4", check=True), CommandFailed)
        assert failure.exit_code == 4
        assert "reason" in str(failure)

    @differs(streaming="nothing is kept")
    async def test_a_time_out_keeps_what_was_written(self, shell: Shell) -> None:
        done = await shell.run("echo before; sleep 1000; echo after", timeout_seconds=1.0)
        assert (done.timed_out, done.exit_code) == (True, None)
        assert done.stdout == ("before\n" if shell.capabilities.streaming else done.stdout)
        assert "after" not in done.stdout

    async def test_check_raises_for_a_time_out_and_the_shell_goes_on(self, shell: Shell) -> None:
        slow = shell.run("sleep 1000", timeout_seconds=0.2, check=True)
        assert (await expect_failure(slow, CommandFailed)).exit_code is None
        assert (await shell.run("echo alive")).stdout == "alive\n"

    async def test_cancelling_ends_a_command(self, shell: Shell) -> None:
        with anyio.move_on_after(0.5) as scope:
            await shell.run("sleep 1000; echo late > cancelled", timeout_seconds=None)
        assert scope.cancelled_caught
        assert await shell.files.stat("cancelled") is None

    async def test_a_process_may_be_ended_twice_and_after_its_end(self, shell: Shell) -> None:
        async with await shell.spawn("true") as process:
            assert await process.wait() == 0
            await process.kill()
            await process.kill()
            await process.aclose()

    @differs(real_processes=_NO_PROCESSES, streaming=_NOT_SEEN)
    async def test_an_end_ends_all_that_ignores_signals_or_left_the_group(self, shell: Shell) -> None:
        if not (shell.capabilities.real_processes and shell.capabilities.streaming):
            return
        await shell.run("mkfifo held")
        async with await shell.spawn(
            "exec 3<>held; trap '' TERM HUP INT; (setsid sleep 1000 >&3 2>&3 &) ; echo ready; sleep 1000"
        ) as process:
            assert await anext(aiter(process.stdout)) == b"ready\n"
        # Reading ends because all writers are gone.
        assert (await shell.run("(: > held &) ; cat held; echo end")).stdout == "end\n"

    @differs(real_processes=_NO_PROCESSES, ends_every_process="may go on", streaming=_NOT_SEEN)
    async def test_an_end_ends_what_has_cleared_its_environment_too(self, shell: Shell) -> None:
        has = shell.capabilities
        if not (has.real_processes and has.ends_every_process and has.streaming):
            return
        await shell.run("mkfifo hidden")
        async with await shell.spawn(
            "exec 3<>hidden; (env -i setsid sleep 1000 >&3 2>&3 &) ; echo ready; sleep 1000"
        ) as process:
            assert await anext(aiter(process.stdout)) == b"ready\n"
        assert (await shell.run("(: > hidden &) ; cat hidden; echo end")).stdout == "end\n"

    @differs(real_processes=_NO_PROCESSES)
    async def test_what_a_command_leaves_behind_does_not_hold_it(self, shell: Shell) -> None:
        if shell.capabilities.real_processes:
            assert (await shell.run("sleep 1000 & echo done")).stdout == "done\n"

    async def test_closing_a_shell_ends_its_commands_and_it_starts_no_more(self) -> None:
        async with self._opened(fresh=True) as shell:
            process = await shell.spawn("sleep 1000")
            await shell.aclose()
            await shell.aclose()
            with anyio.fail_after(10):
                await process.aclose()
            await expect_failure(shell.run("true"), ConfigError)

    # Input

    async def test_a_command_has_no_input_unless_given(self, shell: Shell) -> None:
        assert (await shell.run("cat; echo end")).stdout == "end\n"

    @differs(stdin=_NO_STDIN)
    async def test_input_is_read_to_its_end(self, shell: Shell) -> None:
        if shell.capabilities.stdin:
            assert (await shell.run("cat; echo end", input="a\nb ☃\n")).stdout == "a\nb ☃\nend\n"
        else:
            await expect_failure(shell.run("cat", input="x"), ConfigError)

    @differs(stdin=_NO_STDIN)
    async def test_input_of_bytes_is_exact(self, shell: Shell) -> None:
        if shell.capabilities.stdin:
            done = await shell.run("cat > input.bin; wc -c < input.bin", input=b"\0\xff\r\n" * 50_000)
            assert done.stdout.strip() == "200000"
            assert (await shell.run("tail -c 4 input.bin | od -An -tx1")).stdout.split() == ["00", "ff", "0d", "0a"]

    @differs(stdin=_NO_STDIN)
    async def test_input_that_is_not_read_is_dropped(self, shell: Shell) -> None:
        if shell.capabilities.stdin:
            assert (await shell.run("echo unread", input="x" * 200_000)).stdout == "unread\n"

    @differs(stdin=_NO_STDIN, streaming="answers arrive at the end")
    async def test_input_and_output_take_turns(self, shell: Shell) -> None:
        if not (shell.capabilities.stdin and shell.capabilities.streaming):
            return
        async with await shell.spawn('while read line; do echo "got $line"; done; echo end', stdin=True) as process:
            output = aiter(process.stdout)
            for word in ("one", "two"):
                await process.write(f"{word}\n".encode())
                assert await anext(output) == f"got {word}\n".encode()
            await process.close_stdin()
            await process.close_stdin()
            assert b"".join([piece async for piece in output]) == b"end\n"
            assert await process.wait() == 0
            await process.write(b"late\n")

    async def test_a_process_without_input_refuses_it(self, shell: Shell) -> None:
        async with await shell.spawn("true") as process:
            await expect_failure(process.write(b"x"), ConfigError)

    # Environment and folder

    async def test_a_variable_has_quotes_lines_and_dollars(self, shell: Shell) -> None:
        done = await shell.run('echo "$GREETING"', env={"GREETING": "a 'b' \"c\"\n$d ☃"})
        assert done.stdout == "a 'b' \"c\"\n$d ☃\n"

    async def test_a_variable_is_of_its_command_only(self, shell: Shell) -> None:
        await shell.run("export B=b", env={"A": "a"})
        assert (await shell.run('echo "[$A$B]"')).stdout == "[]\n"

    async def test_variables_of_the_calling_process_are_not_there(self) -> None:
        name = f"CORRAL_{secrets.token_hex(4).upper()}"
        os.environ[name] = "secret"
        try:
            async with self._opened(fresh=True) as shell:
                assert "secret" not in (await shell.run("env", output_bytes=1_000_000)).stdout
        finally:
            del os.environ[name]

    async def test_a_name_of_a_variable_is_checked(self, shell: Shell) -> None:
        for env in ({"A=B": "c"}, {"": "c"}, {"A": "a\0b"}):
            await expect_failure(shell.run("true", env=env), ConfigError)

    async def test_a_nul_in_a_command_is_refused(self, shell: Shell) -> None:
        await expect_failure(shell.run("echo a\0b"), ConfigError)
        await expect_failure(shell.run("true", cwd="a\0b"), ConfigError)

    async def test_a_folder_may_be_relative_or_absolute(self, shell: Shell) -> None:
        await shell.files.mkdir("deep/er")
        home = (await shell.run("pwd")).stdout.strip()
        assert (await shell.run("pwd", cwd="deep/er")).stdout.strip() == f"{home}/deep/er"
        assert (await shell.run("pwd", cwd=f"{home}/deep")).stdout.strip() == f"{home}/deep"

    async def test_cd_is_for_one_command(self, shell: Shell) -> None:
        home, there = (await shell.run("pwd; mkdir -p there; cd there; pwd")).stdout.splitlines()
        assert there == f"{home}/there"
        assert (await shell.run("pwd")).stdout == f"{home}\n"

    async def test_a_folder_that_is_not_there_is_an_error_before_the_start(self, shell: Shell) -> None:
        for cwd in ("nowhere", "/no/such/folder"):
            await expect_file_error(shell.run("echo started > proof", cwd=cwd), cwd)
        assert await shell.files.stat("proof") is None

    async def test_a_file_is_no_folder_to_run_in(self, shell: Shell) -> None:
        await shell.files.write_text("no-folder", "x")
        await expect_failure(shell.run("true", cwd="no-folder"), FileError)

    # Bash

    async def test_quotes_lines_and_here_documents_reach_bash_as_they_are(self, shell: Shell) -> None:
        assert (await shell.run("printf '%s|' \"a b\" 'c\"d' e\\ f\nprintf x")).stdout == 'a b|c"d|e f|x'
        assert (await shell.run("cat <<'EOF'\n$HOME `x`\nEOF")).stdout == "$HOME `x`\n"

    async def test_a_command_of_60_kB(self, shell: Shell) -> None:  # noqa: N802
        assert (await shell.run(f": {'y' * 60_000}; echo ok")).stdout == "ok\n"

    async def test_a_command_is_never_an_option_of_bash(self, shell: Shell) -> None:
        assert (await shell.run("--version")).exit_code == 127

    async def test_pipes_functions_arrays_and_tests_of_bash(self, shell: Shell) -> None:
        script = 'f() { for x in "${@:2}"; do [[ $x == b* ]] && echo "${x^^} $((${#x} + 1))"; done; }; a=(b1 c b22)'
        assert (await shell.run(f'{script}; f - "${{a[@]}}" | sort -r')).stdout == "B22 4\nB1 3\n"

    async def test_outputs_of_commands_at_the_same_time_do_not_mix(self, shell: Shell) -> None:
        outputs: dict[int, str] = {}

        async def run(number: int) -> None:
            outputs[number] = (await shell.run(f"seq {number} {number + 500} | tail -1")).stdout

        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(run, number)
        assert outputs == {number: f"{number + 500}\n" for number in range(8)}

    # The shell itself

    async def test_it_says_what_it_is(self, shell: Shell) -> None:
        assert shell.description
        assert isinstance(shell.capabilities.containment, ContainmentKind)

    async def test_the_restricted_view_ends_nothing(self, shell: Shell) -> None:
        view = shell.restricted()
        await view.files.write_text("seen.txt", "x")
        await view.aclose()
        assert (await view.run("cat seen.txt")).stdout == "x"
        assert view.capabilities == shell.capabilities
        assert view.description == shell.description
