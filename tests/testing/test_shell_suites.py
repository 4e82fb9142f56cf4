"""The suites of shells: broken shells fail, and what cases let a shell off for is declared, and so in the reference."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from typing import Any

import pytest

from corral.containment import ContainmentKind
from corral.shells import Completed, MemoryShell, Process, Shell, ShellCapabilities
from corral.testing import FilesSuite, ShellSuite
from corral.testing.shells import behaviours

CASES = [case for suite in (ShellSuite, FilesSuite) for name, case in vars(suite).items() if name.startswith("test_")]
NO_DIFFERENCES = {"containment"}
SAID_OTHERWISE = {"test_on_output_may_be_asynchronous_and_names_the_stream"}


def test_a_case_asks_for_no_capability_that_it_does_not_declare() -> None:
    undeclared: dict[str, set[str]] = {}
    for case in CASES:
        asked = set(re.findall(r"(?:capabilities|has)\.(\w+)", inspect.getsource(case))) - NO_DIFFERENCES
        if asked != {*getattr(case, "_corral_differences", {})} and case.__name__ not in SAID_OTHERWISE:
            undeclared[case.__name__] = asked
    assert undeclared == {}


def test_a_shell_that_lacks_everything_differs_in_all_that_is_declared() -> None:
    lacking: dict[str, Any] = {each.name: False for each in fields(ShellCapabilities) if each.type == "bool"}
    nothing = ShellCapabilities(containment=ContainmentKind.of_tier("none"), **lacking)
    everything = ShellCapabilities(containment=ContainmentKind.of_tier("none"))
    differing = 0
    for suite in (ShellSuite, FilesSuite):
        assert {*behaviours(suite, everything).values()} == {"yes"}
        differing += sum(text != "yes" for text in behaviours(suite, nothing).values())
    assert differing == sum(hasattr(case, "_corral_differences") for case in CASES)
    assert len(CASES) > 60


# --- broken shells


class Forgiving(MemoryShell):
    async def run(self, command: str, **options: Any) -> Completed:
        return replace(await super().run(command, **options), exit_code=0)


class Mumbling(MemoryShell):
    async def run(self, command: str, **options: Any) -> Completed:
        done = await super().run(command, **options)
        return replace(done, stdout=done.stdout.encode("ascii", "ignore").decode())


class Remembering(MemoryShell):
    def __init__(self) -> None:
        super().__init__()
        self._env: dict[str, str] = {}

    async def spawn(
        self, command: str, *, cwd: str | None = None, env: Mapping[str, str] | None = None, stdin: bool = False
    ) -> Process:
        self._env |= env or {}
        return await super().spawn(command, cwd=cwd, env=self._env, stdin=stdin)


class Losing(MemoryShell):
    def __init__(self) -> None:
        super().__init__()
        written = self.files.write_bytes

        async def write(path: str, data: bytes) -> None:
            await written(path, data[:-1])

        self.files.write_bytes = write


class Deaf(MemoryShell):
    def __init__(self) -> None:
        super().__init__()

        async def delete(path: str) -> bool:
            return path != ""

        self.files.delete = delete


BROKEN: dict[str, tuple[type[MemoryShell], Callable[..., Any]]] = {
    "says that all commands succeed": (Forgiving, ShellSuite.test_an_exit_code_is_the_commands),
    "loses characters": (Mumbling, ShellSuite.test_output_in_any_script),
    "keeps variables": (Remembering, ShellSuite.test_a_variable_is_of_its_command_only),
    "cuts files": (Losing, FilesSuite.test_bytes_are_exact),
    "deletes nothing": (Deaf, FilesSuite.test_a_file_and_a_folder_with_all_in_it_are_deleted),
}


@pytest.mark.anyio
async def test_a_shell_that_breaks_a_promise_fails_and_one_that_keeps_it_does_not() -> None:
    passed: list[str] = []
    for name, (broken, case) in BROKEN.items():
        await case(suite_of(MemoryShell))
        try:
            await case(suite_of(broken))
        except AssertionError:
            continue
        passed.append(name)
    assert passed == []


def suite_of(shell: type[MemoryShell]) -> ShellSuite | FilesSuite:
    class Suite(ShellSuite, FilesSuite):
        @asynccontextmanager
        async def shell(self) -> AsyncGenerator[Shell]:
            async with shell() as opened:
                yield opened

    return Suite()
