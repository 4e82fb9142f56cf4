"""What `--tools` takes, and what it says when there is something wrong with it."""

from __future__ import annotations

import subprocess

import pytest

from corral import Corral
from corral.cli.tool_loading import load_tools
from corral.errors import ConfigError
from tests.cli.terminal import Here, Project

PLACES = '''
from corral import tool
from corral.tools import ToolRegistry


@tool
async def one() -> int:
    """One."""
    return 1


def plain(number: int) -> int:
    """A function that is no tool yet."""
    return number


members = [one, plain]
registry = ToolRegistry(one)
registry.register(plain, namespace="numbers")


def make() -> list[object]:
    return [one]


def fail() -> list[object]:
    raise RuntimeError("no database")


nothing: list[object] = []
text = "one"
'''


@pytest.fixture
def here(here: Here) -> Here:
    """With modules that hold tools, and others."""
    here.write("places.py", PLACES)
    here.write("empty.py", "")
    here.write("notes.txt", "")
    here.write("exits.py", "import sys\nsys.exit(0)\n")
    return here


def names(project: Project, *places: str) -> subprocess.CompletedProcess[str]:
    """What a program finds on `tools`, joined by commas."""
    project.write("names.ts", "return Object.keys(tools).join()")
    return project.corral(
        "run", "names.ts", "--no-check", *(argument for place in places for argument in ("--tools", place))
    )


@pytest.mark.usefixtures("here")
def test_tools_are_found_where_they_can_be_kept() -> None:
    kept = {
        "places": "numbers.plain,one",
        "places:registry": "numbers.plain,one",
        "places:members": "one,plain",
        "places:one": "one",
        "places:make": "one",
        "./places.py": "numbers.plain,one",
        "places.py:members": "one,plain",
    }
    assert {place: ",".join(sorted(map(str, Corral(load_tools([place])).tools))) for place in kept} == kept


def test_without_a_name_a_list_called_tools_comes_before_single_tools(here: Here) -> None:
    here.write("places.py", f"{PLACES}\ndel registry\ntools = [plain]\n")
    assert [str(name) for name in Corral(load_tools(["places"])).tools] == ["plain"]


def test_without_a_name_single_tools_are_found(here: Here) -> None:
    here.write("places.py", f"{PLACES}\ndel registry\nsame = one\n")
    assert [str(name) for name in Corral(load_tools(["places"])).tools] == ["one"]


def test_several_places_add_up(project: Project) -> None:
    project.write("places.py", PLACES)
    project.write("more.py", "def two() -> int:\n    return 2\n\ntools = [two]\n")
    assert sorted(names(project, "places:one", "more.py").stdout.strip().split(",")) == ["one", "two"]


def test_a_file_may_have_any_name_and_import_its_neighbours(project: Project) -> None:
    project.write("elsewhere/neighbour.py", "VALUE = 3\n")
    project.write(
        "elsewhere/types.py",
        "from neighbour import VALUE\n\ndef value() -> int:\n    return VALUE\n\ntools = [value]\n",
    )
    assert names(project, "elsewhere/types.py").stdout == "value\n"


WITHOUT_TOOLS = {
    "plaices": "there is no module 'plaices' here or on Python's path",
    "app.plaices": "there is no module 'app.plaices' here or on Python's path",
    "plaices.py": "there is no file plaices.py",
    "./places": (
        "--tools './places': neither the name of a module nor a path that ends in .py; did you mean places.py?"
    ),
    "app/tools": "there is no module 'app/tools' here or on Python's path; did you mean app/tools.py?",
    "app/": "there is no module 'app/' here or on Python's path; app/ is a folder: name one of its files",
    "notes.txt": "--tools 'notes.txt': neither the name of a module nor a path that ends in .py",
    "app": "app has no tools itself; name one of its modules: app.tools",
    "exits": 'exits cannot be imported: it exits the process; do that below `if __name__ == "__main__":`',
    "places:registri": "places has no 'registri'; did you mean registry?",
    "places:xyz": "places has no 'xyz'; it has: one, members, registry",
    "places:text": "places:text is not a tool, list of tools or ToolRegistry, but str",
    "places:plain": "places:plain takes arguments; make it a tool with @tool, or put it into a list",
    "places:nothing": "places:nothing has no tools",
    "empty": "empty has no tools; decorate functions with @tool, or name the list of tools, empty:NAME",
}


@pytest.mark.usefixtures("here")
def test_a_place_without_tools_is_said_in_one_line() -> None:
    said: dict[str, str] = {}
    for place in WITHOUT_TOOLS:
        with pytest.raises(ConfigError) as raised:
            load_tools([place])
        said[place] = str(raised.value)
    assert said == WITHOUT_TOOLS


def test_what_is_wrong_with_tools_is_all_that_is_printed(project: Project) -> None:
    done = names(project, "plaices.py")
    assert (done.stdout, done.stderr, done.returncode) == ("", "error: there is no file plaices.py\n", 2)


@pytest.mark.usefixtures("here")
def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="there is already a tool 'one'"):
        Corral(load_tools(["places:one", "places:make"]))


@pytest.mark.parametrize("place", ["broken", "broken.py", "places:fail"])
def test_code_of_the_host_that_raises_is_shown_with_its_own_frames_only(project: Project, place: str) -> None:
    project.write("places.py", PLACES.replace("RuntimeError", "ValueError"))
    project.write("broken.py", 'raise ValueError("no database")\n')
    done = names(project, place)
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-2:] == ["ValueError: no database", f"error: {place} cannot be imported"]
    assert done.stderr.count("  File ") == 1
    assert done.returncode == 2


def test_a_module_that_lacks_another_one_is_not_itself_called_missing(project: Project) -> None:
    project.write("broken.py", "import not_installed\n")
    done = names(project, "broken")
    assert done.stderr.splitlines()[-2:] == [
        "ModuleNotFoundError: No module named 'not_installed'",
        "error: broken cannot be imported",
    ]
