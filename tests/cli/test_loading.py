"""What `--tools` takes, and what it says when there is something wrong with it."""

from __future__ import annotations

import subprocess

import pytest

from tests.cli.terminal import Project

PLACES = '''
from corral import ToolRegistry, tool


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


def names(project: Project, *places: str) -> subprocess.CompletedProcess[str]:
    """What a program finds on `tools`, joined by commas."""
    project.write("names.ts", "return Object.keys(tools).join()")
    return project.corral("run", "names.ts", *(argument for place in places for argument in ("--tools", place)))


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("places", "numbers,one"),
        ("places:registry", "numbers,one"),
        ("places:members", "one,plain"),
        ("places:one", "one"),
        ("places:make", "one"),
        ("./places.py", "numbers,one"),
        ("places.py:members", "one,plain"),
    ],
)
def test_tools_are_found_where_they_can_be_kept(project: Project, place: str, found: str) -> None:
    project.write("places.py", PLACES)
    done = names(project, place)
    assert (sorted(done.stdout.strip().split(",")), done.stderr) == (found.split(","), "")


def test_without_a_name_a_list_called_tools_comes_before_single_tools(project: Project) -> None:
    project.write("places.py", f"{PLACES}\ndel registry\ntools = [plain]\n")
    assert names(project, "places").stdout == "plain\n"


def test_without_a_name_single_tools_are_found(project: Project) -> None:
    project.write("places.py", f"{PLACES}\ndel registry\nsame = one\n")
    assert names(project, "places").stdout == "one\n"


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


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("plaices", "there is no module 'plaices' here or on Python's path"),
        ("app.plaices", "there is no module 'app.plaices' here or on Python's path"),
        ("plaices.py", "there is no file plaices.py"),
        ("./places", "--tools './places': not the name of a module, and not a path that ends in .py"),
        ("places:registri", "places has no 'registri'; did you mean registry?"),
        ("places:xyz", "places has no 'xyz'"),
        ("places:text", "places:text is no tool, list of tools or ToolRegistry, but str"),
        ("places:plain", "places:plain takes arguments; make it a tool with @tool, or put it into a list"),
        ("places:nothing", "places:nothing holds no tools"),
        ("empty", "empty holds no tools: decorate functions with @tool, or name what holds them, empty:NAME"),
    ],
)
def test_a_place_without_tools_is_said_in_one_line(project: Project, place: str, said: str) -> None:
    project.write("places.py", PLACES)
    project.write("empty.py", "")
    done = names(project, place)
    assert (done.stdout, done.stderr, done.returncode) == ("", f"error: {said}\n", 2)


def test_two_tools_of_one_name_are_refused(project: Project) -> None:
    project.write("places.py", PLACES)
    done = names(project, "places:one", "places:make")
    assert (done.stderr, done.returncode) == ("error: there is already a tool 'one'\n", 2)


@pytest.mark.parametrize("place", ["broken", "broken.py", "places:fail"])
def test_code_of_the_host_that_raises_is_shown_with_its_own_frames_only(project: Project, place: str) -> None:
    project.write("places.py", PLACES)
    project.write("broken.py", 'raise RuntimeError("no database")\n')
    done = names(project, place)
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-2:] == ["RuntimeError: no database", f"error: {place} cannot be imported"]
    assert done.stderr.count("  File ") == 1
    assert done.returncode == 2


def test_a_module_that_lacks_another_one_is_not_itself_called_missing(project: Project) -> None:
    project.write("broken.py", "import not_installed\n")
    done = names(project, "broken")
    assert done.stderr.splitlines()[-2:] == [
        "ModuleNotFoundError: No module named 'not_installed'",
        "error: broken cannot be imported",
    ]
