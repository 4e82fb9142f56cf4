"""Conformance suite of shells: files."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import anyio

from corral.errors import FileError
from corral.shells import FileInfo
from corral.testing.behaviours import BehaviourSuite, differs, expect_failure, expect_file_error


class FilesSuite(BehaviourSuite):
    """Tests of files that every shell must pass. Implement `shell`, and `fresh_shell` if `shell` is always the same."""

    many_files: int = 10_001
    """Number of files in one folder."""

    # Reading and writing

    async def test_bytes_are_exact(self) -> None:
        async with self._opened() as shell:
            data = bytes(range(256)) * 400
            await shell.files.write_bytes("data.bin", data)
            assert await shell.files.read_bytes("data.bin") == data

    async def test_an_empty_file(self) -> None:
        async with self._opened() as shell:
            await shell.files.write_text("empty-file", "")
            assert await shell.files.read_bytes("empty-file") == b""
            assert await shell.files.stat("empty-file") == FileInfo("empty-file", "file", 0)

    async def test_text_is_utf_8_with_line_ends_as_they_are(self) -> None:
        async with self._opened() as shell:
            await shell.files.write_text("text.txt", "größer\r\n☃\n\n𝄞")
            assert await shell.files.read_text("text.txt") == "größer\r\n☃\n\n𝄞"

    async def test_another_encoding(self) -> None:
        async with self._opened() as shell:
            await shell.files.write_text("latin.txt", "größer", encoding="latin-1")
            assert await shell.files.read_bytes("latin.txt") == "größer".encode("latin-1")
            assert await shell.files.read_text("latin.txt", encoding="latin-1") == "größer"

    async def test_what_is_no_text_in_the_encoding_is_an_error(self) -> None:
        async with self._opened() as shell:
            await shell.files.write_bytes("no-text", b"\xff")
            await expect_file_error(shell.files.read_text("no-text"), "no-text")
            await expect_file_error(shell.files.read_text("no-text", encoding="no-such"), "no-text")
            await expect_file_error(shell.files.write_text("snow", "☃", encoding="ascii"), "snow")
            assert await shell.files.stat("snow") is None

    async def test_a_file_is_read_as_a_stream(self) -> None:
        async with self._opened() as shell:
            await shell.files.write_bytes("read.bin", bytes(150_000))
            stream = await shell.files.read_stream("read.bin")
            assert stream is not None
            assert b"".join([piece async for piece in stream]) == bytes(150_000)

    async def test_a_file_is_written_from_a_stream(self) -> None:
        async def pieces() -> AsyncGenerator[bytes]:
            yield b"one "
            yield b""
            yield b"two"

        async with self._opened() as shell:
            await shell.files.write_stream("streamed/two.txt", pieces())
            assert await shell.files.read_text("streamed/two.txt") == "one two"

    async def test_reading_has_a_bound(self) -> None:
        async with self._opened() as shell:
            await shell.files.write_bytes("bounded", b"\xff" * 100)
            await expect_file_error(shell.files.read_bytes("bounded", max_bytes=99), "bounded")
            assert await shell.files.read_bytes("bounded", max_bytes=100) == b"\xff" * 100

    async def test_lines_are_counted_from_1_and_the_last_is_included(self) -> None:
        async with self._opened() as shell:
            await shell.files.write_text("lines", "1\n2\n3\n4")
            assert await shell.files.read_text("lines", lines=(2, 3)) == "2\n3\n"
            assert await shell.files.read_text("lines", lines=(1, 1)) == "1\n"
            assert await shell.files.read_text("lines", lines=(3, None)) == "3\n4"

    async def test_lines_past_the_end_are_none(self) -> None:
        async with self._opened() as shell:
            await shell.files.write_text("few", "1\n2")
            assert await shell.files.read_text("few", lines=(2, 99)) == "2"
            assert await shell.files.read_text("few", lines=(9, 12)) == ""

    async def test_what_is_not_there_is_not_read(self) -> None:
        async with self._opened() as shell:
            assert await shell.files.read_bytes("none") is None
            assert await shell.files.read_text("none/at/all", lines=(1, 2)) is None
            assert await shell.files.read_stream("none") is None

    async def test_writing_makes_folders(self) -> None:
        async with self._opened() as shell:
            await shell.files.write_text("a/b/c.txt", "text")
            assert await shell.files.read_text("a/b/c.txt") == "text"

    async def test_writing_replaces_the_whole_file(self) -> None:
        async with self._opened() as shell:
            await shell.files.write_text("replaced", "a long first text")
            await shell.files.write_text("replaced", "second")
            assert await shell.files.read_text("replaced") == "second"

    async def test_a_folder_is_neither_read_nor_written(self) -> None:
        async with self._opened() as shell:
            await shell.files.mkdir("folder/inner")
            await expect_file_error(shell.files.write_text("folder/inner", "x"), "folder/inner")
            await expect_file_error(shell.files.read_text("folder/inner"), "folder/inner")

    async def test_nothing_is_written_below_a_file(self) -> None:
        async with self._opened() as shell:
            await shell.files.write_text("leaf", "x")
            await expect_file_error(shell.files.write_text("leaf/d", "x"), "leaf/d")
            await expect_failure(shell.files.mkdir("leaf"), FileError)

    async def test_files_written_at_the_same_time(self) -> None:
        async with self._opened() as shell:
            async with anyio.create_task_group() as tasks:
                for number in range(4):
                    tasks.start_soon(shell.files.write_text, f"parallel/{number}", f"{number}" * 1000)
            entries = await shell.files.list("parallel")
            assert [(each.path, each.size) for each in entries or ()] == [(f"{number}", 1000) for number in range(4)]

    # Folders

    async def test_a_folder_that_is_there_stays(self) -> None:
        async with self._opened() as shell:
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

    async def test_a_recursive_list_has_paths_from_its_folder(self) -> None:
        async with self._opened() as shell:
            for name in ("tree/one", "tree/deep/two", "tree/deep/er/three"):
                await shell.files.write_text(name, name)
            entries = await shell.files.list("tree", recursive=True)
            paths = ["deep", "deep/er", "deep/er/three", "deep/two", "one"]
            assert [each.path for each in entries or ()] == paths
            await expect_file_error(shell.files.list("tree", recursive=True, max_entries=4), "4")

    async def test_a_list_of_an_empty_folder_of_a_file_and_of_nothing(self) -> None:
        async with self._opened() as shell:
            await shell.files.mkdir("empty")
            await shell.files.write_text("listed.txt", "x")
            assert await shell.files.list("empty") == []
            await expect_file_error(shell.files.list("listed.txt"), "listed.txt")
            assert await shell.files.list("none") is None

    async def test_stat_has_kind_and_size(self) -> None:
        async with self._opened() as shell:
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

    async def test_a_file_and_a_folder_with_all_in_it_are_deleted(self) -> None:
        async with self._opened() as shell:
            await shell.files.write_text("gone/a/b", "x")
            await shell.files.write_text("gone/c", "x")
            assert await shell.files.delete("gone/c") is True
            assert await shell.files.delete("gone") is True
            assert await shell.files.stat("gone") is None

    async def test_deleting_what_is_not_there_is_no_error(self) -> None:
        async with self._opened() as shell:
            assert await shell.files.delete("none") is False
            assert await shell.files.delete("none/at/all") is False

    async def test_the_working_directory_and_what_is_above_it_are_not_deleted(self) -> None:
        async with self._opened() as shell:
            for path in ("", ".", "./", "/", ".."):
                await expect_failure(shell.files.delete(path), FileError)

    # Links and other kinds

    async def test_links_are_listed_as_links(self) -> None:
        async with self._opened() as shell:
            await shell.run("mkdir -p links/to; cd links; echo x > to/file; ln -s to folder; ln -s nowhere lost")
            entries = await shell.files.list("links", recursive=True)
            kinds = {each.path: each.kind for each in entries or ()}
            assert kinds == {"folder": "link", "lost": "link", "to": "directory", "to/file": "file"}

    @differs(links="refused")
    async def test_links_are_followed(self) -> None:
        async with self._opened() as shell:
            await shell.files.write_text("target", "text")
            await shell.run("ln -s target link", check=True)
            if shell.capabilities.links:
                assert await shell.files.read_text("link") == "text"
                assert await shell.files.stat("link") == FileInfo("link", "file", 4)
            else:
                await expect_file_error(shell.files.read_text("link"), "link")

    @differs(links="refused")
    async def test_a_link_to_nothing_is_not_there(self) -> None:
        async with self._opened() as shell:
            await shell.run("ln -s nowhere dangling", check=True)
            if shell.capabilities.links:
                assert await shell.files.read_text("dangling") is None
                assert await shell.files.stat("dangling") is None
            else:
                await expect_file_error(shell.files.read_text("dangling"), "dangling")

    async def test_deleting_a_link_keeps_its_target(self) -> None:
        async with self._opened() as shell:
            await shell.run("mkdir linked; echo text > linked/file; ln -s linked to-folder", check=True)
            assert await shell.files.delete("to-folder") is True
            assert await shell.files.read_text("linked/file") == "text\n"

    @differs(real_processes="there are none")
    async def test_a_pipe_is_no_file_to_read(self) -> None:
        async with self._opened() as shell:
            if shell.capabilities.real_processes:
                await shell.run("mkfifo waiting", check=True)
                await expect_file_error(shell.files.read_bytes("waiting"), "waiting")
                info = await shell.files.stat("waiting")
                assert info is not None
                assert info.kind == "other"

    # Paths

    async def test_names_with_spaces_quotes_and_signs_of_bash(self) -> None:
        async with self._opened() as shell:
            names = ["-dash ☃", "it's $HOME", 'a "b"; *', "#back\\slash"]
            for name in [*names, "*"]:
                await shell.files.write_text(f"names/{name}", name)
            entries = await shell.files.list("names")
            assert {each.path for each in entries or ()} == {*names, "*"}
            assert [await shell.files.read_text(f"names/{name}") for name in names] == names
            assert await shell.files.delete("names/*") is True
            assert await shell.files.delete("names/*") is False

    @differs(control_names="refused")
    async def test_names_with_line_breaks(self) -> None:
        async with self._opened() as shell:
            if shell.capabilities.control_names:
                await shell.files.write_text("lined/a\nb", "x")
                assert [each.path for each in await shell.files.list("lined") or ()] == ["a\nb"]
                assert await shell.files.read_text("lined/a\nb") == "x"
            else:
                await expect_failure(shell.files.write_text("lined/a\nb", ""), FileError)

    async def test_a_nul_in_a_path_is_refused(self) -> None:
        async with self._opened() as shell:
            await expect_failure(shell.files.read_bytes("a\0b"), FileError)
            await expect_failure(shell.files.write_bytes("a\0b", b""), FileError)

    async def test_an_absolute_path_is_the_same_file(self) -> None:
        async with self._opened() as shell:
            home = (await shell.run("echo x > absolute; pwd")).stdout.strip()
            assert await shell.files.read_text(f"{home}/absolute") == "x\n"
            await shell.files.write_text(f"{home}/written/here", "y")
            assert await shell.files.read_text("written/here") == "y"

    async def test_a_path_may_have_dots(self) -> None:
        async with self._opened() as shell:
            await shell.files.write_text("dots/inner/file", "x")
            assert await shell.files.read_text("./dots/./inner/file") == "x"

    async def test_a_path_of_60_folders(self) -> None:
        async with self._opened() as shell:
            path = "d/" * 60 + "file"
            await shell.files.write_text(path, "x")
            assert await shell.files.read_text(path) == "x"
            assert await shell.files.delete("d") is True

    # With commands

    async def test_commands_see_files_that_were_written(self) -> None:
        async with self._opened() as shell:
            await shell.files.write_text("from-host/a.txt", "host")
            assert (await shell.run("cat from-host/a.txt; rm from-host/a.txt")).stdout == "host"
            assert await shell.files.stat("from-host/a.txt") is None

    async def test_files_that_commands_write_are_seen(self) -> None:
        async with self._opened() as shell:
            await shell.run("mkdir made; printf shell > made/b.txt", check=True)
            assert await shell.files.read_text("made/b.txt") == "shell"
            assert await shell.files.stat("made/b.txt") == FileInfo("made/b.txt", "file", 5)

    async def test_a_script_that_was_written_runs(self) -> None:
        async with self._opened() as shell:
            await shell.files.write_text("script.sh", 'echo "$0 $1"; exit 5\n')
            done = await shell.run("bash ./script.sh 'a b'")
            assert (done.exit_code, done.stdout) == (5, "./script.sh a b\n")
