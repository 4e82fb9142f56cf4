"""Whatever a cloud computer answers about files, it is a file, or the error that says that the computer is lost."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from corral.errors import ShellLost
from corral.shells import Completed
from corral.shells.clouds.remote import CommandFiles

pytestmark = pytest.mark.anyio


class _Computer:
    """Ends each command with the same output."""

    def __init__(self, stdout: str) -> None:
        self.stdout = stdout

    async def run(self, _command: str, **_: Any) -> Completed:
        return Completed(exit_code=0, stdout=self.stdout, stderr="")


def files(answer: str) -> CommandFiles:
    shell: Any = _Computer(answer)
    return CommandFiles(shell)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize("answer", ["!!!", "é", "abc", "aGk=\naGk= x"])
async def test_a_content_that_is_not_base64(answer: str) -> None:
    with pytest.raises(ShellLost, match=r"a\.txt: the computer's answer is not a file"):
        await files(answer).read_bytes("a.txt")


async def test_a_content_may_end_with_a_line_end() -> None:
    assert await files("aGk=\r\n").read_bytes("a.txt") == b"hi"


@pytest.mark.parametrize("size", ["x", "", "-5", "9" * 5_000, "٣", "1_0"])
async def test_a_size_that_is_none(size: str) -> None:
    with pytest.raises(ShellLost, match="is not a size"):
        await files(f"{size} regular file").stat("a.txt")
    with pytest.raises(ShellLost, match="is not a size"):
        await files(encoded(f"f {size} a.txt\0")).list()


@pytest.mark.parametrize("answer", ["@@", encoded("x\0"), encoded("f 5\0")])
async def test_a_list_that_is_none(answer: str) -> None:
    with pytest.raises(ShellLost, match="answer is not a file"):
        await files(answer).list("folder")


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x", "a//b", "", ".", "a/./b"])
async def test_a_name_in_a_list_that_is_not_below_the_folder(name: str) -> None:
    with pytest.raises(ShellLost, match="is not the name of a file in the folder"):
        await files(encoded(f"f 5 {name}\0")).list(recursive=True)
