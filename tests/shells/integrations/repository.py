"""A small git repository with a wrong sum, and its test; and commands that take too long."""

from __future__ import annotations

from corral.shells import Completed, Shell

__all__ = ["make_repository", "timed_out"]

TEST = "from sums import add\n\nassert add(1, 2) == 3\n"


async def make_repository(shell: Shell) -> None:
    await shell.files.write_text("sums.py", "def add(a: int, b: int) -> int:\n    return a - b\n")
    await shell.files.write_text("test_sums.py", TEST)
    await shell.files.write_text(".gitignore", "__pycache__\n")
    await shell.run(
        "git init -q . && git add . && git -c user.name=a -c user.email=a@example.org commit -qm first", check=True
    )


async def timed_out(_: Shell, command: str, *, timeout_seconds: float, output_bytes: int) -> Completed:
    """`Shell.run` of a command without an end, which has written what it was given."""
    said = f"{command} for {timeout_seconds:g} s"
    return Completed(exit_code=None, stdout=said, stderr="", timed_out=True)
