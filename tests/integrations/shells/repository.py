"""A small git repository with a wrong sum, and its test."""

from __future__ import annotations

from corral.shells import Shell

__all__ = ["make_repository"]

TEST = "from sums import add\n\nassert add(1, 2) == 3\n"


async def make_repository(shell: Shell) -> None:
    await shell.files.write_text("sums.py", "def add(a: int, b: int) -> int:\n    return a - b\n")
    await shell.files.write_text("test_sums.py", TEST)
    await shell.files.write_text(".gitignore", "__pycache__\n")
    await shell.run(
        "git init -q . && git add . && git -c user.name=a -c user.email=a@example.org commit -qm first", check=True
    )
