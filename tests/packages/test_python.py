"""Packages of Python by a lock: added as wheels with hashes, seen by the programs that were given them, in a real jail."""

from __future__ import annotations

import io
import shutil
import tarfile
import zipfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from corral import ConfigError, Corral
from corral.cli.dispatch import run
from corral.containment import Tier
from corral.packages import PythonFolder, PythonPackages
from corral.sandboxes import CPythonSandbox

pytestmark = pytest.mark.anyio

GREETING = "import words\ndef greet(name):\n    return f'{words.HELLO}, {name}'\n"
SETUP = "raise SystemExit('a setup.py was run')\n"
LOADS = "import os\nCOUNT = [os.getpid()]\ndef fresh():\n    return COUNT[0] != os.getpid()\n"

PLOTS = """\
import json, os, sys, types
from pathlib import Path
font_manager = types.ModuleType("matplotlib.font_manager")
sys.modules["matplotlib.font_manager"] = font_manager
font_manager._JSONEncoder = json.JSONEncoder
def load(try_read_cache=True):
    folder = os.environ["MPLCONFIGDIR"]
    assert os.access(folder, os.W_OK)
    list = Path(folder, "fontlist-v1.json")
    if try_read_cache and list.exists():
        return json.loads(list.read_text())
    font_manager.json_dump("made by " + sys.argv[0], list)
font_manager._load_fontmanager = load
"""
"""Finds its list of fonts as matplotlib does."""


def wheel(folder: Path, name: str, version: str, module: str, *requires: str) -> None:
    info = f"{name}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *map("Requires-Dist: {}".format, requires)]
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", module)
        file.writestr(f"{info}/METADATA", "\n".join(metadata) + "\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("registry")
    wheel(folder, "greeting", "1.0", GREETING, "words==2.0")
    wheel(folder, "words", "2.0", "HELLO = 'Hello'\n")
    wheel(folder, "loads", "1.0", LOADS)
    wheel(folder, "broken", "1.0", "raise ValueError('not today')\n")
    with tarfile.open(folder / "sourced-1.0.tar.gz", "w:gz") as file:
        for name, text in {
            "setup.py": SETUP,
            "PKG-INFO": "Metadata-Version: 2.1\nName: sourced\nVersion: 1.0\n",
        }.items():
            entry = tarfile.TarInfo(f"sourced-1.0/{name}")
            entry.size = len(text)
            file.addfile(entry, io.BytesIO(text.encode()))
    return folder


@pytest.fixture(scope="module")
def folder(registry: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A user's folder, with what the command has put there."""
    made = tmp_path_factory.mktemp("user") / "corral-packages"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_CONFIG_FILE", "/dev/null")
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(registry))
        names = ("greeting==1.0", "Loads==1.0", "broken==1.0")
        assert run(["packages", "add", *names, "--python", "--folder", str(made)]) == 0
        yield made


@pytest.fixture(
    scope="module",
    params=["namespaces", pytest.param("landlock", marks=pytest.mark.matrix("the same in the other jail"))],
)
async def corral(request: pytest.FixtureRequest) -> AsyncIterator[Corral]:
    tier: Tier = request.param
    async with Corral(sandbox={"python": CPythonSandbox(tier=tier)}, check=False) as corral:
        yield corral


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


async def test_programs_of_a_session_import_its_packages_and_no_others_do(corral: Corral, folder: Path) -> None:
    program = "import greeting, words\ngreeting.greet('Ann')"
    async with corral.session(packages=PythonPackages(folder)) as session:
        assert (await session.execute(program, language="python")).value == "Hello, Ann"
        missing = (await session.execute("import pandas", language="python")).error
        assert missing is not None
        assert missing.message == (
            "No module named 'pandas': programs may import the standard library and broken, greeting, loads"
        )
        broken = (await session.execute("import broken", language="python")).error
        assert broken is not None
        assert (broken.name, broken.message) == ("ValueError", "not today")
        changed = (await session.execute("open(__import__('words').__file__, 'w')", language="python")).error
        assert changed is not None
        assert changed.name in ("OSError", "PermissionError")
    async with corral.session() as session:
        other = (await session.execute(program, language="python")).error
        assert other is not None
        assert other.message == "No module named 'greeting': programs may import the standard library"


async def test_preloaded_modules_are_there_before_the_program(corral: Corral, folder: Path) -> None:
    program = "import sys\n[name in sys.modules for name in ('loads', 'greeting')], __import__('loads').fresh()"
    async with corral.session(packages=PythonPackages(folder, preload=["loads", "broken"])) as session:
        assert (await session.execute(program, language="python")).value == [[True, False], True]
        broken = (await session.execute("import broken", language="python")).error
        assert broken is not None
        assert broken.message == "not today"
    async with corral.session(packages=PythonPackages(folder)) as session:
        assert (await session.execute(program, language="python")).value == [[False, False], False]


@pytest.fixture
def plots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    wheel(tmp_path, "matplotlib", "1.0", PLOTS)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert run(["packages", "add", "matplotlib==1.0", "--python", "--folder", str(tmp_path)]) == 0
    return tmp_path


@pytest.mark.matrix("packages are added and preloaded in the gate; the list of fonts of one")
async def test_the_fonts_of_matplotlib_are_listed_in_a_jail_when_it_is_added(corral: Corral, plots: Path) -> None:
    async with corral.session(packages=PythonPackages(plots, preload=["matplotlib"])) as session:
        found = await session.execute("import matplotlib; matplotlib.load()", language="python", env={"A": "1"})
        assert (found.value, found.console) == ("made by program.py", "")
        assert not found.files
        written = await session.execute("open(__import__('os').environ['MPLCONFIGDIR'] + '/x', 'w')", language="python")
        assert written.error is not None
    assert [each.name for each in (PythonFolder(plots).modules / ".matplotlib").iterdir()] == ["fontlist-v1.json"]


async def test_a_corral_gives_its_packages_to_all_programs_in_python(folder: Path) -> None:
    async with Corral(packages=PythonPackages(folder), check=False) as corral:
        result = await corral.execute("import greeting\ngreeting.greet('Bo')", language="python")
        assert result.value == "Hello, Bo"
        assert "You may import `broken`, `greeting`, `loads` and the standard library" in corral.model.prompt(
            language="python"
        )
    async with Corral(sandbox="monty", packages=PythonPackages(folder), check=False) as corral:
        with pytest.raises(ConfigError, match=r"sandbox 'monty' does not support packages here; .*packages="):
            await corral.execute("1", language="python")


def test_a_lock_has_the_hash_of_every_wheel_and_what_was_named(folder: Path) -> None:
    lock = PythonFolder(folder).lock.read_text()
    lines = [line.split(" --hash=sha256:") for line in lock.splitlines()]
    assert {name: rest[64:] for name, rest in lines} == {
        "greeting==1.0": "  # named",
        "loads==1.0": "  # named",
        "broken==1.0": "  # named",
        "words==2.0": "",
    }


@pytest.mark.matrix("the lock is read and compared in the gate; the installer's own refusal")
def test_another_wheel_than_the_locked_one_is_not_installed(folder: Path, registry: Path, tmp_path: Path) -> None:
    kept, here = PythonFolder(folder), PythonFolder(tmp_path)
    here.lock.parent.mkdir()
    here.lock.write_bytes(kept.lock.read_bytes())
    with pytest.raises(ConfigError, match=r"greeting==1\.0 is not installed in .*; corral packages install --python"):
        PythonPackages(tmp_path)
    here.install()
    assert PythonPackages(tmp_path).allowed == ("broken", "greeting", "loads")
    original = (registry / "words-2.0-py3-none-any.whl").read_bytes()
    try:
        wheel(registry, "words", "2.0", "HELLO = 'Goodbye'\n")
        with pytest.raises(ConfigError, match=r"pip cannot install Python packages: .*HASHES"):
            here.install()
    finally:
        (registry / "words-2.0-py3-none-any.whl").write_bytes(original)
    assert (here.modules / "words.py").read_text() == "HELLO = 'Hello'\n"


def test_nothing_is_built_and_inexact_versions_are_refused(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = PythonFolder(folder).lock.read_bytes()
    assert run(["packages", "add", "sourced==1.0", "--python", "--folder", str(folder)]) != 0
    said = capfd.readouterr()
    assert "No matching distribution found for sourced==1.0" in said.err
    assert "a setup.py was run" not in said.err
    for inexact in ("words", "words>=1", "words==2.*", "words @ file:///etc", "--index-url=x"):
        with pytest.raises(ConfigError, match="is not NAME==VERSION"):
            PythonFolder(folder).parse(inexact)
    assert PythonFolder(folder).lock.read_bytes() == before


@pytest.mark.matrix("test_command.py adds, lists and removes packages in the gate; here those of Python")
def test_packages_are_listed_and_removed(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    there = ("--python", "--folder", str(tmp_path))
    assert run(["packages", "remove", "greeting", "broken", *there]) == 0
    assert run(["packages", "list", *there]) == 0
    assert capfd.readouterr().out == "removed greeting\nremoved broken\nloads==1.0\n"
    assert sorted(each.name for each in PythonFolder(tmp_path).modules.glob("*.py")) == ["loads.py"]
    with pytest.raises(ConfigError, match="there is no package 'words'"):
        PythonFolder(tmp_path).remove(["words"])
    with pytest.raises(ConfigError, match=r"preload: there is no module 'load'.*did you mean 'loads'"):
        PythonPackages(tmp_path, preload=["load"])
    with pytest.raises(ConfigError, match=r"there are no Python packages for cpython-.*corral packages add"):
        PythonPackages(tmp_path / "nowhere")
