"""Files of sessions in programs that run in Monty, which asks the host for each of them."""

from __future__ import annotations

import io
import os
import socket
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from corral import Corral, ExecutionContext, Limits, Session, tool
from corral.containment import Tier
from corral.events import ConsoleOutput, Event
from corral.sandboxes import DenoSandbox, SandboxProvider
from corral.sandboxes.monty import MontySandbox
from corral.sessions import Directory, Mount, Scratch, Sessions
from corral.types import Language
from tests.sessions.attacks import ATTACKS

pytestmark = pytest.mark.anyio

ANN = ExecutionContext(user_id="ann")
MIB = 1 << 20
LANDLOCK = pytest.mark.matrix(
    "only programs in TypeScript run in the other tier, and see the same files as in namespaces"
)
HOME = "/root/workspace"
OUTCOMES = """
import os
from pathlib import Path

outcomes = {}
def attempt(name, act):
    try:
        outcomes[name] = f"done: {act()!r}"
    except Exception as error:
        outcomes[name] = f"{type(error).__name__}: {error}"
"""


@pytest.fixture(scope="module", params=["namespaces", pytest.param("landlock", marks=LANDLOCK)])
async def tier(request: pytest.FixtureRequest) -> Tier:
    return request.param


@pytest.fixture(scope="module")
async def corral(tier: Tier) -> AsyncIterator[Corral]:
    sandbox: dict[Language, str | SandboxProvider] = {
        "python": MontySandbox(pool_size=1),
        "typescript": DenoSandbox(tier=tier),
    }
    async with Corral(sandbox=sandbox, containment="none", check=False, limits=Limits(memory_mb=64)) as opened:
        yield opened


@pytest.fixture(scope="module")
async def alone() -> AsyncIterator[Corral]:
    sandbox: dict[Language, str | SandboxProvider] = {"python": MontySandbox(pool_size=1)}
    async with Corral(sandbox=sandbox, check=False, limits=Limits(memory_mb=64)) as opened:
        yield opened


@pytest.fixture
async def session(corral: Corral) -> AsyncIterator[Session]:
    async with corral.session(context=ANN, files=[Mount(HOME, Scratch(bytes=MIB, files=20))]) as opened:
        yield opened


async def python(session: Session, source: str) -> Any:
    result = await session.execute(source, language="python")
    result.raise_for_error()
    return result.value


async def attempts(session: Session, acts: dict[str, str]) -> dict[str, str]:
    lines = "\n".join(f"attempt({name!r}, lambda: {act})" for name, act in acts.items())
    return await python(session, f"{OUTCOMES}{lines}\nreturn outcomes")


USES = {
    "paths": (
        (
            "p = Path('a/b')\np.mkdir(parents=True)\n(p / 'c.txt').write_text('één')\n(p / 'd').write_bytes(b'\\x00\\xff')\n"
            "return (p / 'c.txt').read_text(), list((p / 'd').read_bytes()), sorted(each.name for each in p.iterdir()), "
            "[p.is_dir(), p.is_file(), p.exists(), (p / 'e').exists(), p.is_symlink()], (p / 'c.txt').stat().st_size, "
            "str(Path.cwd()), str(Path('../x').resolve()), Path('a').absolute().name"
        ),
        ["één", [0, 255], ["c.txt", "d"], [True, False, True, False, False], 5, HOME, "/root/x", "a"],
    ),
    "open": (
        (
            "with open('a.txt', 'w') as f:\n    f.write('one\\n')\n    f.write('two\\n')\n"
            f"with open('{HOME}/a.txt', 'a') as f:\n    f.write('three')\n"
            "with open('a.txt') as f:\n    first, rest = f.readline(), f.read()\n"
            "with Path('b').open('wb') as f:\n    f.write(b'\\x01')\n"
            "return first, rest, open('a.txt').readlines(), open('b', 'rb').read() == b'\\x01'"
        ),
        ["one\n", "two\nthree", ["one\n", "two\n", "three"], True],
    ),
    "moves": (
        (
            "open('a', 'w').write('x')\nopen('b', 'w').write('y')\nos.rename('a', 'b')\nos.makedirs('c/d', exist_ok=True)\n"
            "os.makedirs('c/d', exist_ok=True)\nPath('b').replace('c/d/e')\nos.rename('c', 'f')\nos.mkdir('g')\nos.rmdir('g')\n"
            "Path('none').unlink(missing_ok=True)\nfound = open('f/d/e').read(), os.listdir(), os.path.getsize('f/d/e')\n"
            "os.remove('f/d/e')\nreturn found, os.listdir('f/d')"
        ),
        [["x", ["f"], 1], []],
    ),
    "trees": (
        (
            "os.makedirs('a/b')\nfor name in ('1.txt', 'a/2.txt', 'a/b/3.csv'):\n    open(name, 'w').close()\n"
            "return sorted(str(each) for each in Path('.').glob('**/*.txt')), list(os.walk('.')), "
            "sorted(each.name for each in os.scandir('a')), [str(each) for each in Path('a').glob('*/*')]"
        ),
        [
            ["1.txt", "a/2.txt"],
            [[".", ["a"], ["1.txt"]], ["./a", ["b"], ["2.txt"]], ["./a/b", [], ["3.csv"]]],
            ["2.txt", "b"],
            ["a/b/3.csv"],
        ],
    ),
    "formats": (
        (
            "import csv, json\nwith open('a.json', 'w') as f:\n    json.dump({'n': 1}, f)\n"
            "with open('a.csv', 'w', newline='') as f:\n    csv.writer(f).writerows([['n'], [1], [2]])\n"
            "with open('a.json') as f:\n    loaded = json.load(f)\n"
            "return loaded, [row['n'] for row in csv.DictReader(open('a.csv'))]"
        ),
        [{"n": 1}, ["1", "2"]],
    ),
    "another folder": (
        "os.mkdir('a')\nos.chdir('a')\nopen('b', 'w').write('x')\nreturn os.getcwd(), open('../a/b').read()",
        [f"{HOME}/a", "x"],
    ),
}


@pytest.mark.parametrize("case", USES.values(), ids=USES)
async def test_usual_ways_to_use_files_work(session: Session, case: tuple[str, object]) -> None:
    source, expected = case
    assert await python(session, f"import os\nfrom pathlib import Path\n{source}") == expected


async def test_programs_of_both_languages_and_the_host_exchange_files(session: Session) -> None:
    await session.files.write_text("in/rows.csv", "n\n1\n2\n")
    first = await session.execute(
        "import json\nrows = open('in/rows.csv').read().split()[1:]\n"
        "json.dump({'sum': sum(int(row) for row in rows)}, open('sum.json', 'w'))",
        language="python",
    )
    first.raise_for_error()
    assert first.files is not None
    assert (first.files.created, first.files.changed, first.files.deleted) == ((f"{HOME}/sum.json",), (), ())
    second = await session.execute(
        'import fs from "fs"; const { sum } = JSON.parse(fs.readFileSync("sum.json", "utf8")); '
        'fs.writeFileSync("report.md", `sum: ${sum}`); fs.appendFileSync("in/rows.csv", "3\\n");'
    )
    second.raise_for_error()
    third = await session.execute(
        "import os\nos.remove('sum.json')\nopen('report.md', 'a').write('!')\n"
        "return open('report.md').read(), open('in/rows.csv').read()",
        language="python",
    )
    assert third.value == ["sum: 3!", "n\n1\n2\n3\n"]
    assert third.files is not None
    assert (third.files.changed, third.files.deleted) == ((f"{HOME}/report.md",), (f"{HOME}/sum.json",))
    assert await session.files.read_text("report.md") == "sum: 3!"


async def test_no_way_leads_out_of_the_directories(session: Session) -> None:
    await session.files.write_text("f", "x")
    outcomes = await attempts(session, ATTACKS)
    assert {name: outcome for name, outcome in outcomes.items() if outcome.startswith("done")} == {}
    assert [entry.path for entry in await session.files.list(recursive=True) or ()] == ["f"]


PATHS = {
    "of the host": "/etc/passwd",
    "above": "../../../etc/passwd",
    "above, later": f"{HOME}/a/../../../etc/passwd",
    "of the process": "/proc/self/environ",
    "a device": "/dev/zero",
    "like a mount": f"{HOME}x/a",
    "above the mounts": "/root",
    "the root": "/",
    "two slashes": "//etc/passwd",
    "long": "/".join(["a"] * 5000),
    "a long name": "n" * 256,
    "empty": "",
    "a NUL": "a\0b",
    "a link to a file": "/open/link",
    "a link to a folder": "/open/folder/secret.txt",
    "a link to itself": "/open/loop/x",
    "a link to nothing": "/open/nothing/x",
    "a FIFO": "/open/fifo",
    "a socket": "/open/socket",
    "below a file": "/open/file/x",
}
OPERATIONS = {
    "read": "Path(path).read_bytes()",
    "open": "open(path).read()",
    "write": "Path(path).write_text('x')",
    "open to write": "open(path, 'wb')",
    "append": "open(path, 'a').write('x')",
    "list": "list(Path(path).iterdir())",
    "walk": "list(os.scandir(path))",
    "make": "os.makedirs(path)",
    "remove a folder": "os.rmdir(path)",
    "bring in": "os.rename(path, 'brought')",
    "take out": "os.rename('mine', path + '/x')",
    "go there": "os.chdir(path)",
}
NAMED = ("a link to a file", "a FIFO", "a socket")
"""Are in a directory that programs may change, so that a rename moves what has the name, and opens nothing."""


async def test_paths_that_lead_elsewhere_are_refused_for_each_operation(corral: Corral, tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "open"
    outside.mkdir()
    inside.mkdir()
    (outside / "secret.txt").write_text("secret")
    (inside / "file").write_text("x")
    (inside / "link").symlink_to(outside / "secret.txt")
    (inside / "folder").symlink_to(outside)
    (inside / "loop").symlink_to("loop")
    (inside / "nothing").symlink_to(outside / "nothing")
    os.mkfifo(inside / "fifo")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(inside / "socket"))
    before = sorted(each.name for each in inside.iterdir())
    files = [Mount(HOME, Scratch(bytes=MIB, files=20)), Mount("/open", Directory(inside), writable=True)]
    async with corral.session(context=ANN, files=files) as session:
        await session.files.write_text("mine", "mine")
        outcomes = await python(
            session,
            f"{OUTCOMES}NAMED = {NAMED!r}\noperations = {{\n"
            + "".join(f"    {name!r}: lambda path: {act},\n" for name, act in OPERATIONS.items())
            + f"}}\nfor name, path in {PATHS!r}.items():\n    for operation, act in operations.items():\n"
            "        if operation != 'bring in' or name not in NAMED:\n"
            "            attempt(f'{operation}: {name}', lambda: act(path))\nreturn outcomes",
        )
        assert {name: outcome for name, outcome in outcomes.items() if outcome.startswith("done")} == {}
        assert len(outcomes) == len(PATHS) * len(OPERATIONS) - len(NAMED)
        raised = {outcome.partition(":")[0] for outcome in outcomes.values()}
        assert raised <= {
            *("FileNotFoundError", "PermissionError", "NotADirectoryError", "IsADirectoryError", "FileExistsError"),
            *("OSError", "ValueError"),
        }
        assert "secret" not in str(outcomes).replace("secret.txt", "")
        assert await python(
            session,
            "from pathlib import Path\nlink = Path('/open/link')\n"
            "return link.is_symlink(), link.exists(), Path('/etc/passwd').exists(), sorted(p.name for p in Path('/open').iterdir())",
        ) == [True, False, False, before]
        assert await session.files.read_text("mine") == "mine"
    assert (outside / "secret.txt").read_text() == "secret"
    assert [each.name for each in outside.iterdir()] == ["secret.txt"]


ERRORS = {
    "open('none')": f"FileNotFoundError: [Errno 2] No such file or directory: '{HOME}/none'",
    "open('/etc/passwd')": f"FileNotFoundError: [Errno 2] No such file or directory: '/etc/passwd': programs see the files in {HOME}",
    "open('/evil', 'w')": f"PermissionError: [Errno 13] Permission denied: '/evil': programs see the files in {HOME}",
    "open('d')": f"IsADirectoryError: [Errno 21] Is a directory: '{HOME}/d'",
    "os.remove('d')": f"IsADirectoryError: [Errno 21] Is a directory: '{HOME}/d'",
    "os.mkdir('d')": f"FileExistsError: [Errno 17] File exists: '{HOME}/d'",
    "os.rmdir('d')": f"OSError: [Errno 39] Directory not empty: '{HOME}/d'",
    "os.listdir('d/f')": f"NotADirectoryError: [Errno 20] Not a directory: '{HOME}/d/f'",
    "open('x/y', 'w')": f"FileNotFoundError: [Errno 2] No such file or directory: '{HOME}/x/y'",
    "Path('d/f').read_text()": "UnicodeDecodeError: 'utf-8' codec can't decode byte 0x89 in position 0: invalid start byte",
    f"os.rmdir('{HOME}')": f"OSError: [Errno 16] Device or resource busy: '{HOME}': a mount point cannot be removed or replaced",
}


async def test_errors_are_those_of_python(session: Session) -> None:
    await session.files.write_bytes("d/f", b"\x89PNG")
    assert await attempts(session, {act: act for act in ERRORS}) == ERRORS


INSTEAD = {
    "open('f', 'r+')": "update modes ('+') are not yet supported: read the file, change its text, and write it",
    "open('f', 'x')": "exclusive creation mode is not supported: ask Path(...).exists() first",
    "open('f', encoding='latin-1')": "files are UTF-8; for another encoding read and write bytes",
    "Path('f').read_text(encoding='utf-8')": "files are UTF-8; leave out the encoding",
    "Path('f').read_text('utf-8')": "files are UTF-8; leave out the encoding",
    "Path('f').touch()": "Monty's PosixPath has no touch; CPythonSandbox's has",
    "print('x', file=open('f', 'w'))": "use its write(...), or use CPythonSandbox",
    "list(open('f'))": "iterate over readlines()",
    "os.symlink('f', 'g')": "Monty's module os has no symlink; CPythonSandbox has",
    "__import__('shutil')": "Monty has no built-in __import__; CPythonSandbox has",
}


@pytest.mark.parametrize(("source", "message"), INSTEAD.items(), ids=INSTEAD)
async def test_what_monty_lacks_is_refused_with_what_to_write_instead(alone: Corral, source: str, message: str) -> None:
    async with alone.session(context=ANN) as session:
        await session.files.write_text("f", "one\ntwo\n")
        result = await session.execute(f"import os\nfrom pathlib import Path\n{source}\n", language="python")
        assert result.error is not None
        assert message in result.error.message


async def test_a_program_in_no_session_has_no_files(alone: Corral) -> None:
    result = await alone.execute("open('/etc/passwd')", language="python", context=ANN)
    assert result.error is not None
    assert (result.error.name, result.files) == ("PermissionError", None)
    assert "programs without a session have no files; call a tool" in result.error.message


async def test_quotas_hold(session: Session, tier: Tier) -> None:
    if tier != "namespaces":
        for source in ("open(f'{n % 15}', 'wb').write(bytes(100_000))", "open(f'{n}', 'w')"):
            over = await session.execute(f"n = 0\nwhile True:\n    {source}\n    n += 1", language="python")
            assert over.error is not None
            assert (over.error.code, over.status) == ("files_exceeded", "failed")
            assert "/root/workspace can hold 1,048,576 bytes and 20 files" in over.error.message
            await python(session, "import os\nfor name in os.listdir():\n    os.remove(name)")
        return
    assert await python(
        session,
        """
import os
def fill(write):
    count = 0
    try:
        while True:
            write(count)
            count += 1
    except OSError as error:
        return count, str(error)
full = open('full', 'wb')
filled = fill(lambda count: full.write(bytes(4096)))
os.remove('full')
return filled, fill(lambda count: open(f'{count}', 'w'))
""",
    ) == [
        [256, f"[Errno 28] No space left on device: '{HOME}/full': this mount is full"],
        [20, f"[Errno 28] No space left on device: '{HOME}/20': this mount is full"],
    ]
    assert (await session.files.usage()).files == 20


async def test_a_quota_is_exact_without_another_engine(alone: Corral) -> None:
    async with alone.session(context=ANN, files=[Mount("/w", Scratch(bytes=8192, files=3))]) as session:
        assert session.exact_quota
        outcomes = await attempts(session, {f"{n}": f"open('{n}', 'wb').write(bytes(4096))" for n in range(3)})
    assert [outcome[:20] for outcome in outcomes.values()] == ["done: 4096", "done: 4096", "OSError: [Errno 28] N"[:20]]


async def test_one_file_in_a_directory_is_bounded(alone: Corral, tmp_path: Path) -> None:
    files = [Mount("/out", Directory(tmp_path, file_bytes=5000), writable=True)]
    async with alone.session(context=ANN, files=files) as session:
        outcomes = await attempts(session, {f"{n}": "open('a', 'ab').write(bytes(3000))" for n in range(2)})
    assert [*outcomes.values()] == [
        "done: 3000",
        "OSError: [Errno 27] File too large: '/out/a': a file here can have at most 5,001 bytes",
    ]
    assert (tmp_path / "a").stat().st_size == 5001


async def test_what_is_for_reading_is_not_changed(corral: Corral, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("given")
    files = [Mount("/in", Directory(tmp_path)), Mount("/kept", Scratch(), writable=False), Mount("/out")]
    acts = {
        f"{act} in {mount}": act.replace("PATH", f"{mount}/a.txt")
        for mount in ("/in", "/kept")
        for act in (
            *("open('PATH', 'w')", "open('PATH', 'ab')", "Path('PATH').write_text('x')", "os.remove('PATH')"),
            *(
                "os.rename('PATH', '/out/a')",
                "os.rename('/out/b', 'PATH')",
                "os.makedirs('PATH/x')",
                "os.rmdir('PATH')",
            ),
        )
    }
    async with corral.session(context=ANN, files=files) as session:
        await session.files.write_text("/kept/a.txt", "kept")
        await session.files.write_text("/out/b", "b")
        outcomes = await attempts(session, acts)
        assert {outcome.rpartition(": ")[2] for outcome in outcomes.values()} == {
            "programs may not change files in /in",
            "programs may not change files in /kept",
        }
        assert {outcome.partition(":")[0] for outcome in outcomes.values()} == {"PermissionError"}
        assert await python(session, "return open('/in/a.txt').read(), open('/kept/a.txt').read()") == ["given", "kept"]
    assert [each.name for each in tmp_path.iterdir()] == ["a.txt"]


async def test_a_large_file_is_refused_before_it_is_read(alone: Corral, tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    async with alone.session(context=ANN, files=[Mount("/in", Directory(tmp_path))]) as session:
        outcomes = await attempts(
            session, {each: each for each in ("open('sparse').read()", "os.stat('sparse').st_size")}
        )
    assert [*outcomes.values()] == [
        (
            "OSError: [Errno 27] File too large: '/in/sparse': files of at most 67,108,864 bytes are read here; "
            "CPython and TypeScript read larger ones"
        ),
        "done: 1099511627776",
    ]


async def test_a_deep_tree_and_names_that_are_no_text_are_listed(alone: Corral, tmp_path: Path) -> None:
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))).write_bytes(b"")
    files = [Mount("/w", Scratch(bytes=8 * MIB, files=3000)), Mount("/in", Directory(tmp_path))]
    async with alone.session(context=ANN, files=files) as session:
        assert await python(
            session,
            "import os\nfrom pathlib import Path\nos.makedirs('d/' * 1500)\n"
            "return len(list(os.walk('.'))), os.listdir('d/' * 1499), os.listdir('/in')",
        ) == [101, ["d"], ["\\xff"]]


async def test_programs_that_overlap_see_what_the_other_writes() -> None:
    written, all_written = list[str](), anyio.Event()

    @tool
    async def meet(name: str) -> None:
        """Waits until both have written."""
        written.append(name)
        if len(written) == 2:
            all_written.set()
        await all_written.wait()

    found: dict[str, Any] = {}
    async with (
        Corral([meet], sandbox={"python": MontySandbox()}, check=False) as corral,
        corral.session(context=ANN) as session,
    ):

        async def run(mine: str, other: str) -> None:
            found[mine] = await python(
                session,
                f"open('{mine}', 'w').write('{mine}' * 1_000_000)\nawait tools.meet(name='{mine}')\n"
                f"return open('{other}').read() == '{other}' * 1_000_000",
            )

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, "a", "b")
            tasks.start_soon(run, "b", "a")
    assert found == {"a": True, "b": True}


async def test_a_program_that_uses_files_all_the_time_ends_with_its_session(alone: Corral) -> None:
    ended: list[str] = []
    began = anyio.Event()

    def observe(event: Event) -> None:
        if isinstance(event, ConsoleOutput):
            began.set()

    async def run(session: Session) -> None:
        source = "while True:\n    open('a', 'w').write('x')\n    print('began')"
        ended.append((await session.execute(source, language="python", on_event=observe)).status)

    async with anyio.create_task_group() as tasks:
        async with alone.session(context=ANN) as session:
            tasks.start_soon(run, session)
            await began.wait()
        assert ended == ["cancelled"]


def _many_files() -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for number in range(4000):
            archive.addfile(tarfile.TarInfo(f"{number}"))
    return content.getvalue()


async def test_time_of_the_host_for_files_is_the_programs(alone: Corral) -> None:
    """Monty itself needs a tenth of a second for these lists, the host some seconds."""
    async with alone.session(context=ANN) as session:
        await session.files.import_tar(_many_files())
        result = await session.execute(
            "import os\nfor _ in range(100):\n    os.listdir()",
            language="python",
            limits=Limits(cpu_seconds=0.3, memory_mb=64),
        )
    assert result.error is not None
    assert "used up its 0.3 s of processor time" in result.error.message


async def test_a_kept_session_and_skills_have_files_in_monty_too(tmp_path: Path) -> None:
    skill = tmp_path / "report"
    skill.mkdir()
    (skill / "SKILL.md").write_text("---\nname: report\ndescription: Writes reports.\n---\nText.\n")
    named = ExecutionContext(user_id="ann", session_id="s")
    async with Corral(sandbox={"python": MontySandbox()}, sessions=Sessions(), skills=[skill], check=False) as corral:
        await corral.execute("open('a', 'w').write('kept')", language="python", context=named)
        source = """
try:
    open('/root/skills/report/SKILL.md', 'a')
except PermissionError as error:
    refused = str(error)
[open('a').read(), open('/root/skills/report/SKILL.md').readline(), refused]
"""
        result = await corral.execute(source, language="python", context=named)
        assert (result.value, result.error) == (
            [
                "kept",
                "---\n",
                (
                    "[Errno 13] Permission denied: '/root/skills/report/SKILL.md': "
                    "programs may not change files in /root/skills"
                ),
            ],
            None,
        )
        async with corral.session_files(named) as files:
            assert await files.read_text("a") == "kept"
