"""The configuration of a sandbox is its whole key: a guest that was started for one never serves another."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import anyio
import pytest

from corral.containment import Tier
from corral.guest import RuntimeDirectory
from corral.jail import Engine, Jail, Mount, jail
from corral.sandboxes.jailed import guest_starter
from corral.sandboxes.jailed.guest_starter import GuestCommand, GuestStarter
from corral.sandboxes.jailed.python_runtime import installation
from corral.types import Owner, SandboxConfig

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="jails are Linux's, so far")

READY = (b"\x00\x00\x00\x15\x10\x00" + bytes(16) + b"[1]").hex()
SHOWS_WHAT_IT_SEES = f"""
import os
for place in {{places}}:
    try:
        os.write(2, f"{{{{place}}}}: {{{{sorted(os.listdir(place))}}}}\\n".encode())
    except OSError:
        pass
os.write(1, bytes.fromhex({READY!r}))
os.read(0, 1)
"""


@pytest.fixture
def folders(tmp_path: Path) -> dict[int, Path]:
    """A folder with one file for each configuration, distinguished by its memory."""
    folders: dict[int, Path] = {}
    for memory_mb in (64, 65):
        folder = folders[memory_mb] = tmp_path / f"for-{memory_mb}"
        folder.mkdir()
        (folder / f"file-{memory_mb}").touch()
        folder.chmod(0o755)
    for parent in (tmp_path, *tmp_path.parents[:-2]):
        parent.chmod(0o755)
    return folders


@pytest.fixture
def starters(monkeypatch: pytest.MonkeyPatch, folders: dict[int, Path]) -> Iterator[list[GuestStarter]]:
    monkeypatch.setattr(guest_starter, "_working", {})
    made: list[GuestStarter] = []
    yield made
    for each in made:
        each.end()


def starter(folders: dict[int, Path], tier: Tier | Literal["auto"] = "auto") -> GuestStarter:
    script = SHOWS_WHAT_IT_SEES.format(places=sorted(map(str, folders.values())))

    def command(config: SandboxConfig) -> GuestCommand:
        folder = folders[config.memory_mb]
        usual = installation(()).engine
        engine = replace(usual, mounts=(*usual.mounts, Mount(folder, str(folder))))
        return GuestCommand(engine, ("-I", "-S", "-c", script))

    return GuestStarter(tier, command, RuntimeDirectory(lambda: {"guest.py": ""}), {}, garbage_mb=8)


def config_of(memory_mb: int) -> SandboxConfig:
    return SandboxConfig(language="python", memory_mb=memory_mb, required_tier="none")


@pytest.mark.parametrize("tier", ["landlock", "namespaces"])
def test_each_configuration_has_a_jail_of_its_own(
    tier: Tier, folders: dict[int, Path], starters: list[GuestStarter]
) -> None:
    made = starter(folders, tier)
    starters.append(made)
    seen: dict[int, str] = {}
    for memory_mb in (64, 65, 64):
        guest = made.start(config_of(memory_mb), in_advance=False)
        anyio.run(guest.process.wait, 0)
        seen[memory_mb] = guest.process.error_tail()
        assert guest.tier == tier
        guest.close()
    assert seen == {each: f"{folder}: ['file-{each}']\n" for each, folder in folders.items()}


def test_the_tier_is_looked_for_once_on_a_machine(
    folders: dict[int, Path], starters: list[GuestStarter], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Tier] = []
    usual = jail.jails_to_try

    def counted(tier: Tier, engine: Engine, directory: Path) -> list[Jail]:
        tried.append(tier)
        return usual(tier, engine, directory)

    monkeypatch.setattr(jail, "jails_to_try", counted)
    for memory_mb in (64, 65):
        starters.append(starter(folders))
        starters[-1].start(config_of(memory_mb), in_advance=False).close()
        assert tried == ["namespaces"]


def test_a_tier_that_works_no_longer_is_looked_for_again(
    folders: dict[int, Path], starters: list[GuestStarter], monkeypatch: pytest.MonkeyPatch
) -> None:
    starters.append(starter(folders))
    starters[-1].start(config_of(64), in_advance=False).close()
    monkeypatch.setattr("corral.jail.jail.bubblewrap", lambda: None)
    starters.append(starter(folders))
    guest = starters[-1].start(config_of(64), in_advance=False)
    guest.close()
    assert guest.tier == "landlock"


def test_sandboxes_that_wait_for_a_user_differ_in_nothing_else() -> None:
    config = SandboxConfig(memory_mb=80, owner=Owner("org", "user"))
    assert config.unowned == SandboxConfig(memory_mb=80) == config.unowned.unowned
    assert config.unowned != SandboxConfig(memory_mb=81)
