"""Texts of packages: made once, kept in the user's cache, and given to sandboxes that take them."""

from __future__ import annotations

from pathlib import Path

import pytest

from corral import ConfigError, Containment, Corral
from corral.checking import Checker
from corral.checking.case import Case
from corral.containment import ContainmentKind
from corral.packages import NpmPackages
from corral.packages.bundler import Bundler
from corral.programs import read_program
from corral.sandboxes import FramedProvider, GuestChannel, GuestFiles
from corral.tools import ToolRegistry
from corral.types import SandboxConfig
from tests.foreign import PACKAGES
from tests.packages.hostile import folder_of

pytestmark = pytest.mark.anyio

PROGRAM = read_program('import "greeting"; return 1;', "typescript")


def greeting(folder: Path, text: str) -> Path:
    return folder_of(folder, greeting=f'module.exports = "{text}";')


async def test_a_text_is_made_once_for_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = greeting(tmp_path / "a", "hello")
    made = await NpmPackages(folder).texts_for(PROGRAM)
    assert (made.allowed, list(made.texts), made.failures) == (("greeting",), ["greeting"], {})
    with monkeypatch.context() as patch:
        patch.setattr(Bundler, "bundle", None)
        assert await NpmPackages(folder).texts_for(PROGRAM) == made
    other = await NpmPackages(greeting(tmp_path / "b", "other")).texts_for(PROGRAM)
    assert "other" in other.texts["greeting"]


async def test_a_cache_that_cannot_be_read_or_written_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    folder = greeting(tmp_path / "a", "again")
    made = await NpmPackages(folder).texts_for(PROGRAM)
    for file in (cache / "corral" / "packages").iterdir():
        if "again" in file.read_text():
            file.write_text('{"code": 1')
    assert await NpmPackages(folder).texts_for(PROGRAM) == made
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert await NpmPackages(folder).texts_for(PROGRAM) == made


async def test_only_what_a_program_names_comes_with_it(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, first="module.exports = 1;", second="module.exports = 2;")
    packages = NpmPackages(folder)
    for source, names in {
        "return 'first';": [],
        'import first from "first"; return first;': ["first"],
        'const { x } = require("second"); return x;': ["second"],
        "return await import(`first`);": ["first"],
        'import type { X } from "first"; return 1;': [],
        'import path from "path"; import fs from "node:fs"; return 1;': [],
    }.items():
        assert list((await packages.texts_for(read_program(source, "typescript"))).texts) == names


class Elsewhere(FramedProvider):
    """A place whose guests load no packages."""

    name = "elsewhere"
    languages = frozenset({"typescript"})
    containment = ContainmentKind("elsewhere", "vm")

    async def connect(self, config: SandboxConfig, guest: GuestFiles) -> GuestChannel:
        raise AssertionError((config, guest))


async def test_a_sandbox_that_takes_no_packages_is_wrong_set_up() -> None:
    unenforced = ("cpu_seconds", "memory_mb")
    corral = Corral(
        sandbox=Elsewhere(),
        packages=NpmPackages(PACKAGES),
        check=False,
        containment=Containment(accept_unenforced=unenforced),
    )
    with pytest.raises(
        ConfigError, match=r"sandbox 'elsewhere' does not support packages here; leave out Corral\(packages"
    ):
        await corral.execute("return 1")
    await corral.aclose()


async def test_types_are_read_in_the_lesser_jail_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.checking.servers.workspace.TIERS", ("landlock",))
    checker = Checker(packages=PACKAGES / "node_modules")
    checker.start("typescript", ToolRegistry())
    try:
        program = read_program('import { Nope } from "docx"; const x = new Nope();', "typescript")
        verdict = await checker.verdict(Case(program, ToolRegistry(), modules=True, must=True))
        assert [each.message for each in verdict.diagnostics] == ["Module '\"docx\"' has no exported member 'Nope'."]
    finally:
        checker.close()
