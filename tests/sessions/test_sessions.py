"""Sessions end to end: programs in a real jail, their files, and what is left of them."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest

from corral import ConfigError, Corral, ExecutionContext, Limits, Session
from corral.containment import Tier
from corral.errors import FileError
from corral.events import ConsoleOutput, Event
from corral.sandboxes import CPythonSandbox, DenoSandbox, SandboxProvider
from corral.sandboxes.wasm import WasmSandbox
from corral.sessions import Directory, Mount, Scratch, Sessions
from corral.testing import FakeGuest, FakeSandbox
from corral.types import Language
from tests.conftest import PlainWasm
from tests.processes import descriptors
from tests.sessions.attacks import ATTACKS

pytestmark = pytest.mark.anyio

ANN = ExecutionContext(user_id="ann")
MIB = 1 << 20


LANDLOCK = pytest.mark.matrix("as in the namespaces tier; the walls, and where files are, the gate has in both")
BOTH_TIERS = pytest.mark.parametrize("tier", ["namespaces", "landlock"], indirect=True)
WASM = pytest.param(
    "wasm",
    marks=pytest.mark.matrix("programs in TypeScript run in WebAssembly; tests/sandboxes has its files in the gate"),
)
PIPES = pytest.param("pipes", marks=pytest.mark.matrix("the same in a plain process, as on systems without a jail"))
IN_TYPESCRIPT = pytest.mark.parametrize(
    "tier", ["namespaces", pytest.param("landlock", marks=LANDLOCK), WASM, PIPES], indirect=True
)


@pytest.fixture(scope="module", params=["namespaces", pytest.param("landlock", marks=LANDLOCK)])
async def tier(request: pytest.FixtureRequest) -> Tier | Literal["wasm", "pipes"]:
    return request.param


@pytest.fixture(scope="module")
async def corral(tier: Tier | Literal["wasm", "pipes"]) -> AsyncIterator[Corral]:
    if tier in ("wasm", "pipes"):
        engine = WasmSandbox(pool_size=0) if tier == "wasm" else PlainWasm(pool_size=0)
        sandbox: dict[Language, str | SandboxProvider] = {"python": CPythonSandbox(), "typescript": engine}
    else:
        sandbox = {"python": CPythonSandbox(tier=tier), "typescript": DenoSandbox(tier=tier)}
    async with Corral(sandbox=sandbox, check=False, limits=Limits(memory_mb=64)) as opened:
        yield opened


@pytest.fixture
async def session(corral: Corral) -> AsyncIterator[Session]:
    files = [Mount("/root/workspace", Scratch(bytes=MIB, files=20))]
    async with corral.session(context=ANN, files=files) as opened:
        yield opened


async def python(session: Session, source: str) -> Any:
    result = await session.execute(source, language="python")
    result.raise_for_error()
    return result.value


async def test_files_stay_from_one_program_to_the_next_and_to_the_host(session: Session) -> None:
    await session.files.write_text("in/data.csv", "a,b\n1,2\n")
    first = await session.execute(
        "import csv, pathlib\nrows = list(csv.DictReader(open('in/data.csv')))\n"
        "pathlib.Path('out').mkdir()\npathlib.Path('/root/workspace/out/rows.txt').write_text(str(rows))",
        language="python",
    )
    first.raise_for_error()
    assert first.files is not None
    assert (first.files.created, first.files.changed, first.files.deleted) == (
        ("/root/workspace/out/rows.txt",),
        (),
        (),
    )
    assert await python(session, "return open('out/rows.txt').read()") == "[{'a': '1', 'b': '2'}]"
    assert await session.files.read_text("out/rows.txt") == "[{'a': '1', 'b': '2'}]"
    last = await session.execute(
        "import os\nos.remove('out/rows.txt')\nopen('in/data.csv', 'a').write('3,4\\n')", language="python"
    )
    assert last.files is not None
    assert (last.files.changed, last.files.deleted) == (
        ("/root/workspace/in/data.csv",),
        ("/root/workspace/out/rows.txt",),
    )
    assert await session.files.read_text("in/data.csv", lines=(2, 3)) == "1,2\n3,4\n"
    assert await session.files.read_text("out/rows.txt") is None


async def test_usual_libraries_find_their_files(session: Session) -> None:
    assert await python(
        session,
        """
import os, pathlib, shutil, sqlite3, tempfile, zipfile
with sqlite3.connect("db.sqlite") as db:
    db.execute("create table t (n)")
    db.executemany("insert into t values (?)", [(n,) for n in range(10)])
db.close()
with zipfile.ZipFile("a.zip", "w") as archive:
    archive.write("db.sqlite")
with tempfile.NamedTemporaryFile() as file:
    file.write(b"x")
shutil.copy("a.zip", "b.zip")
os.replace("b.zip", "c.zip")
with sqlite3.connect(pathlib.Path.cwd() / "db.sqlite") as again:
    total = again.execute("select sum(n) from t").fetchone()[0]
return total, sorted(os.listdir()), zipfile.ZipFile("c.zip").namelist()
""",
    ) == [45, ["a.zip", "c.zip", "db.sqlite"], ["db.sqlite"]]


TYPESCRIPT = {
    "synchronous": (
        (
            'import * as fs from "fs"; fs.mkdirSync("a/b", { recursive: true }); fs.writeFileSync("a/b/c.txt", "one"); '
            'fs.appendFileSync("a/b/c.txt", " two"); return fs.readFileSync("/root/workspace/a/b/c.txt", "utf8");'
        ),
        "one two",
    ),
    "promises": (
        (
            'import { readFile, writeFile } from "node:fs/promises"; await writeFile("a.json", JSON.stringify({ a: 1 })); '
            'return JSON.parse(await readFile("a.json", "utf8")).a;'
        ),
        1,
    ),
    "callbacks": (
        (
            'import fs from "node:fs"; await new Promise<void>((done) => fs.writeFile("a.txt", "x", () => done())); '
            'return await new Promise((done) => fs.readFile("a.txt", "utf8", (error, text) => done([error, text])));'
        ),
        [None, "x"],
    ),
    "require": (
        (
            'const { promises, existsSync } = require("fs"); await promises.writeFile("a.txt", "x"); '
            'return [existsSync("a.txt"), existsSync("b.txt"), (await promises.stat("a.txt")).size];'
        ),
        [True, False, 1],
    ),
    "buffers and paths": (
        (
            'import fs from "fs"; import path from "path"; const name = path.join(process.cwd(), "a.bin"); '
            'fs.writeFileSync(name, Buffer.from([1, 2, 255])); return fs.readFileSync(name).toString("hex");'
        ),
        "0102ff",
    ),
    "lists": (
        (
            'import fs from "fs"; fs.mkdirSync("d"); fs.writeFileSync("d/f", ""); fs.cpSync("d", "e", { recursive: true }); '
            'fs.renameSync("e/f", "e/g"); fs.rmSync("d", { recursive: true }); '
            'return fs.readdirSync(".", { withFileTypes: true }).map((each) => [each.name, each.isDirectory()]).concat(fs.readdirSync("e"));'
        ),
        [["e", True], "g"],
    ),
    "descriptors": (
        (
            'import fs from "fs"; const file = fs.openSync("a", "w+"); fs.writeSync(file, "abcdef"); '
            "const bytes = Buffer.alloc(3); fs.readSync(file, bytes, 0, 3, 2); fs.closeSync(file); return bytes.toString();"
        ),
        "cde",
    ),
    "streams": (
        (
            'import fs from "fs"; import { pipeline } from "stream/promises"; import { createGzip, gunzipSync } from "zlib"; '
            'fs.writeFileSync("a.txt", "x".repeat(100_000)); '
            'await pipeline(fs.createReadStream("a.txt"), createGzip(), fs.createWriteStream("a.gz")); '
            'return gunzipSync(fs.readFileSync("a.gz")).length;'
        ),
        100_000,
    ),
    "a handle": (
        (
            'import fs from "fs/promises"; const file = await fs.open("a.txt", "w+"); await file.write("abc"); '
            "const text = (await file.stat()).size; await file.close(); return text;"
        ),
        3,
    ),
    "constants and kinds": (
        (
            'import fs from "fs"; fs.writeFileSync("a", ""); fs.accessSync("a", fs.constants.R_OK | fs.constants.W_OK); '
            'const [entry] = fs.readdirSync(".", { withFileTypes: true }); '
            'return [fs.constants.R_OK, fs.statSync("a") instanceof fs.Stats, entry instanceof fs.Dirent];'
        ),
        [4, True, True],
    ),
    "what is not there": (
        'import fs from "fs"; try { fs.readFileSync("none.txt"); } catch (error: any) { return error.message.replace("/root/workspace/", ""); }',
        "ENOENT: no such file or directory, open 'none.txt'",
    ),
    "what is outside": (
        'import fs from "fs/promises"; try { await fs.readFile("/etc/passwd"); } catch (error: any) { return error.message; }',
        "EACCES: permission denied, open '/etc/passwd': programs see the files in /root/workspace",
    ),
}


@IN_TYPESCRIPT
async def test_files_of_node_work_in_typescript(session: Session, tier: Tier | Literal["wasm", "pipes"]) -> None:
    for name, (source, expected) in TYPESCRIPT.items():
        if tier in ("wasm", "pipes") and name == "streams":
            continue  # it has none, as docs/wasm.md says
        result = await session.execute(source)
        assert (name, result.value, result.error) == (name, expected, None)
        for entry in await session.files.list() or ():
            await session.files.delete(entry.path)


@IN_TYPESCRIPT
async def test_both_languages_see_the_same_files(session: Session) -> None:
    written = await session.execute('import fs from "fs"; fs.writeFileSync("a.csv", "n\\n1\\n2\\n")')
    assert written.files is not None
    assert written.files.created == ("/root/workspace/a.csv",)
    assert await python(session, "import csv\nreturn [row['n'] for row in csv.DictReader(open('a.csv'))]") == ["1", "2"]


@IN_TYPESCRIPT
async def test_a_program_in_no_session_has_no_files(corral: Corral) -> None:
    result = await corral.execute('import fs from "fs"; return fs.readFileSync("a.txt")', context=ANN)
    assert result.error is not None
    assert "Deno" not in (await corral.execute("return typeof Deno", context=ANN)).value
    assert 'module "fs" is not available' in result.error.message


ATTACKS_IN_TYPESCRIPT = {
    "symlink": 'fs.symlinkSync("/etc/passwd", "l")',
    "hard link": 'fs.linkSync("f", "hard")',
    "owner": 'fs.chownSync("f", 0, 0)',
    "set-id bit": 'fs.chmodSync("f", 0o4755)',
    "the host's files": 'fs.readFileSync("/etc/passwd")',
    "the process's": 'fs.readFileSync("/proc/self/environ")',
    "its memory": 'fs.openSync("/proc/self/mem", "r+")',
    "above the root": 'fs.readFileSync("../../../../etc/passwd")',
    "the guest's code": 'fs.writeFileSync("/guest/zygote.js", "")',
    "by an address": 'fs.readFileSync(new URL("file:///etc/passwd"))',
    "the engine's namespace": 'Deno.readFileSync("/guest/main.js")',
    "a library": 'Deno.dlopen("/lib/x86_64-linux-gnu/libc.so.6", {})',
    "a command": 'new Deno.Command("ls").outputSync()',
    "through an object that changes": 'fs.readFileSync({ toString() { return "/etc/passwd" } } as any)',
}


@pytest.mark.parametrize("tier", ["namespaces", "landlock", WASM, PIPES], indirect=True)
async def test_no_way_leads_out_of_the_directories_in_typescript(session: Session) -> None:
    await session.files.write_text("f", "x")
    attempts = "\n".join(f"attempt({name!r}, () => {source});" for name, source in ATTACKS_IN_TYPESCRIPT.items())
    result = await session.execute(f"""
import fs from "fs";
const outcomes: Record<string, string> = {{}};
function attempt(name: string, act: () => unknown) {{
  try {{ outcomes[name] = `done: ${{act()}}`; }} catch {{ outcomes[name] = "refused"; }}
}}
{attempts}
return outcomes;
""")
    assert result.error is None
    assert {name for name, outcome in result.value.items() if outcome != "refused"} == set()


@BOTH_TIERS
async def test_no_way_leads_out_of_the_directories(session: Session) -> None:
    await session.files.write_text("f", "x")
    attempts = "\n".join(f"attempt({name!r}, lambda: {source})" for name, source in ATTACKS.items())
    outcomes = await python(
        session,
        f"""
outcomes = {{}}
def attempt(name, act):
    try:
        outcomes[name] = f"done: {{act()!r}}"
    except (OSError, ZeroDivisionError) as error:
        outcomes[name] = "refused"
{attempts}
return outcomes
""",
    )
    assert {name for name, outcome in outcomes.items() if outcome != "refused"} == set()
    assert [entry.path for entry in await session.files.list(recursive=True) or ()] == ["f"]


async def test_a_deep_tree_with_closed_folders_is_removed_by_the_host_and_leaves_nothing(corral: Corral) -> None:
    """Deeper than a path may be long, so that it has no name by which anybody could open it."""
    program = """
import os
for name in ("removed", "left"):
    os.chdir("/root/workspace")
    os.mkdir(name); os.chdir(name)
    for depth in range(600):
        os.mkdir("d" * 200); os.chdir("d" * 200)
    os.chmod(".", 0)
"""
    files = [Mount("/root/workspace", Scratch(bytes=8 * MIB, files=2000))]
    async with corral.session(context=ANN, files=files) as session:
        place = session.opened.space.binds[0].source
        await python(session, program)
        await session.files.delete("removed")
        assert [each.path for each in await session.files.list() or ()] == ["left"]
    assert not Path(place).exists()


@BOTH_TIERS
async def test_quotas_hold_to_the_byte_and_the_file(session: Session, tier: Tier) -> None:
    assert session.exact_quota == (tier == "namespaces")
    if not session.exact_quota:
        await _over_the_quota(session)
        return
    written, files = await python(
        session,
        """
def fill():
    count = 0
    with open("full", "wb", buffering=0) as file:
        try:
            while True:
                count += file.write(bytes(4096))
        except OSError as error:
            return count, error.errno
def many():
    count = 0
    try:
        while True:
            open(f"{count}", "w").close()
            count += 1
    except OSError as error:
        return count, error.errno
filled = fill()
os.remove("full")
return filled, many()
""",
    )
    assert written == [MIB, 28]
    assert files == [20, 28]
    assert (await session.files.usage()).files == 20
    with pytest.raises(FileError, match=r"no room left in this mount; raise Scratch\("):
        await session.files.write_text("one more", "")


async def _over_the_quota(session: Session) -> None:
    """On disk, programs are ended once they are over, and a later one may make room."""
    for source in (
        "for number in range(10_000_000):\n    open(f'{number % 15}', 'wb').write(bytes(100_000))",
        "for number in range(10_000_000):\n    open(f'{number}', 'w').close()",
    ):
        over = await session.execute(source, language="python")
        assert over.error is not None
        assert (over.error.code, over.status) == ("files_exceeded", "failed")
        assert "/root/workspace can hold 1,048,576 bytes and 20 files" in over.error.message
        assert await python(session, "import os\nfor name in os.listdir(): os.remove(name)\nreturn os.listdir()") == []


async def test_a_file_larger_than_the_mount_is_refused_to_a_program(session: Session) -> None:
    result = await session.execute("import os\nopen('a', 'w').close()\nos.truncate('a', 1 << 40)", language="python")
    assert result.error is not None
    assert "File too large" in result.error.message


async def test_a_file_left_open_in_a_full_mount_fails_its_program(session: Session) -> None:
    source = (
        "open('full', 'wb').write(bytes(1048576 - 4096))\nleft = open('left', 'w')\nleft.write('x' * 6000)\nreturn 1"
    )
    result = await session.execute(source, language="python")
    assert result.error is not None
    if session.exact_quota:
        assert result.error.message.endswith(
            "left was not closed, and its end could not be written: No space left on device"
        )
    else:
        assert result.error.code == "files_exceeded"


async def test_files_of_a_program_s_own_classes_fail_it_only_for_lack_of_room(session: Session) -> None:
    source = """
import io
class Own(io.RawIOBase):
    def writable(self): return True
    def write(self, data): raise ERROR
left = io.BufferedWriter(Own())
left.write(b"x")
return 1
"""
    assert await python(session, source.replace("ERROR", "RuntimeError('broken')")) == 1  # as Python itself closes it
    result = await session.execute(source.replace("ERROR", "OSError(28, 'full')"), language="python")
    assert result.error is not None
    assert result.error.message == "a file was not closed, and its end could not be written: full"


async def test_two_sessions_of_one_user_do_not_see_each_other(corral: Corral, session: Session) -> None:
    await python(session, "open('mine', 'w').write('x')")
    async with corral.session(context=ANN) as other:
        assert await python(other, "import os\nreturn os.getcwd(), os.listdir()") == ["/workspace", []]
    result = await corral.execute("import os\nreturn os.path.exists('/workspace')", language="python", context=ANN)
    assert result.value is False
    assert result.files is None


async def test_a_directory_of_the_host_is_read_and_only_changed_if_it_may(corral: Corral, tmp_path: Path) -> None:
    for name in ("given", "open"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(name)
    files = [Mount("/in", Directory(tmp_path / "given")), Mount("/out", Directory(tmp_path / "open"), writable=True)]
    async with corral.session(context=ANN, files=files) as session:
        result = await session.execute(
            "open('b.txt', 'w').write(open('/in/a.txt').read() + open('/out/a.txt').read())", language="python"
        )
        result.raise_for_error()
        assert result.files is not None
        assert result.files.created == ("/out/b.txt",)
        refused = await session.execute("open('/in/a.txt', 'w')", language="python")
        assert refused.error is not None
        assert "Programs see the files in /in (read-only), /out and those of Python" in refused.error.message
        with pytest.raises(FileError, match="read-only directory"):
            await session.files.write_text("/in/a.txt", "x")
        assert await session.files.read_text("/in/a.txt") == "given"
    assert (tmp_path / "open" / "b.txt").read_text() == "givenopen"
    assert (tmp_path / "given" / "a.txt").read_text() == "given"


async def test_an_archive_brings_files_from_one_session_to_another(corral: Corral, session: Session) -> None:
    await python(session, "import os\nos.makedirs('a/b')\nopen('a/b/c.bin', 'wb').write(bytes(range(256)))")
    archive = b"".join([piece async for piece in await session.files.export()])
    async with corral.session(context=ANN) as other:
        assert await other.files.import_tar(archive, "from") == 1
        assert await python(other, "return open('from/a/b/c.bin', 'rb').read()[255]") == 255


def archive_of(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("before.txt"))
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname, entry.size = kind, target, 3 if kind == tarfile.REGTYPE else 0
        archive.addfile(entry, io.BytesIO(b"abc"))
    return content.getvalue()


ARCHIVES = {
    "absolute": (archive_of("/etc/x"), "leads out of its folder"),
    "above": (archive_of("../x"), "leads out of its folder"),
    "above, later": (archive_of("a/../../x"), "leads out of its folder"),
    "a link": (archive_of("l", tarfile.SYMTYPE, "/etc/passwd"), "neither a regular file nor a folder"),
    "a hard link": (archive_of("l", tarfile.LNKTYPE, "before.txt"), "neither a regular file nor a folder"),
    "a device": (archive_of("d", tarfile.CHRTYPE), "neither a regular file nor a folder"),
    "a pipe": (archive_of("p", tarfile.FIFOTYPE), "neither a regular file nor a folder"),
    "compressed": (gzip.compress(archive_of("a")), "not a whole tar archive without compression"),
    "cut short": (archive_of("a")[:1025], "not a whole tar archive without compression"),
    "no archive": (b"x" * 2000, "not a whole tar archive without compression"),
}


@pytest.mark.parametrize("case", ARCHIVES.values(), ids=ARCHIVES)
async def test_hostile_archives_are_refused_with_the_reason(session: Session, case: tuple[bytes, str]) -> None:
    archive, message = case
    with pytest.raises(FileError, match=message):
        await session.files.import_tar(archive)


async def test_an_archive_with_more_in_it_than_said_is_refused(session: Session) -> None:
    with pytest.raises(FileError, match="more than 2 bytes"):
        await session.files.import_tar(archive_of("a"), max_bytes=2)


async def test_programs_end_with_their_session(corral: Corral) -> None:
    ended: list[str] = []
    began = anyio.Event()

    def observe(event: Event) -> None:
        if isinstance(event, ConsoleOutput):
            began.set()

    async def run(session: Session) -> None:
        source = "print('began')\nimport time\nwhile True: time.sleep(3600)"
        ended.append((await session.execute(source, language="python", on_event=observe)).status)

    async with anyio.create_task_group() as tasks:
        async with corral.session(context=ANN) as session:
            tasks.start_soon(run, session)
            await began.wait()
        assert ended == ["cancelled"]


@pytest.mark.parametrize(
    "path", ["../x", "a/../../x", "/etc/passwd", "/root/workspace/../x", "a\0b", "n" * 256, "/root/workspacex/a"]
)
async def test_paths_that_lead_elsewhere_are_refused(session: Session, path: str) -> None:
    for act in (session.files.read_bytes(path), session.files.write_bytes(path, b""), session.files.delete(path)):
        with pytest.raises(FileError):
            await act


async def test_a_session_is_for_its_user_and_languages_and_while_it_is_open(corral: Corral) -> None:
    async with corral.session(context=ANN, languages=["typescript"]) as session:
        with pytest.raises(ConfigError, match=r"is for programs in typescript; add others with Corral.session\(lang"):
            await session.execute("1", language="python", context=ANN)
        with pytest.raises(ConfigError, match="belongs to another user or organization"):
            await session.execute("return 1", context=ExecutionContext(user_id="bob"))
    with pytest.raises(ConfigError, match="this session is closed"):
        await session.execute("return 1")
    with pytest.raises(FileError, match="closed"):
        await session.files.read_text("a")


MOUNTS = {
    "not absolute": (lambda: [Mount("workspace")], "absolute and plain"),
    "not plain": (lambda: [Mount("/a/../b")], "absolute and plain"),
    "the root": (lambda: [Mount("/")], "absolute and plain"),
    "the engine's": (lambda: [Mount("/usr/lib/x")], "/usr belongs to the engine"),
    "a comma": (lambda: [Mount("/a,b")], "without a comma"),
    "within another": (lambda: [Mount("/a"), Mount("/a/b")], "may not overlap"),
    "twice": (lambda: [Mount("/a"), Mount("/a")], "may not overlap"),
    "none": (list, "give it a Mount"),
    "no directory": (lambda: [Mount("/a", Directory("/nowhere at all"))], "there is no directory"),
    "nothing in it": (lambda: [Mount("/a", Scratch(bytes=0))], "must be positive"),
}


@pytest.mark.parametrize("case", MOUNTS.values(), ids=MOUNTS)
async def test_mounts_that_cannot_be_are_refused_with_the_reason(corral: Corral, case: tuple[Any, str]) -> None:
    make, message = case
    with pytest.raises(ConfigError, match=message):
        async with corral.session(files=make()):
            pass


async def nothing(_guest: FakeGuest) -> None: ...


async def test_a_sandbox_without_files_says_so() -> None:
    async with Corral(sandbox={"python": FakeSandbox(nothing)}, check=False) as corral:
        with pytest.raises(ConfigError, match="this Corral's sandboxes do not support sessions"):
            async with corral.session():
                pass
        with pytest.raises(ConfigError, match="sandbox 'fake', for python, does not support session files"):
            async with corral.session(languages=["python"]):
                pass


async def test_nothing_is_left_of_a_closed_session(corral: Corral) -> None:
    async with corral.session(context=ANN, languages=["python", "typescript"]):
        pass
    before = descriptors()
    for _ in range(2):
        async with corral.session(context=ANN, languages=["python", "typescript"]) as session:
            await python(session, "open('a', 'w').write('x' * 1000)")
    assert descriptors() <= before


async def test_a_guest_that_was_prepared_runs_the_first_program() -> None:
    sandbox = DenoSandbox(isolation="fork")
    async with (
        Corral(sandbox=sandbox, check=False) as corral,
        corral.session(context=ANN, languages=["typescript"]) as session,
    ):
        forks = sandbox._forks  # pyright: ignore[reportPrivateUsage]
        assert forks is not None
        prepared = [*forks._servers._boxes]  # pyright: ignore[reportPrivateUsage]
        assert len(prepared) == 1
        assert (await session.execute("return 1")).value == 1
        assert [*forks._servers._boxes] == prepared  # pyright: ignore[reportPrivateUsage]


async def test_a_check_knows_of_the_files_of_callers_with_a_session() -> None:
    source = 'import fs from "fs"; return fs.existsSync(process.cwd())'
    async with Corral(sessions=Sessions()) as corral:
        named = await corral.check(source, context=ExecutionContext(session_id="s"))
        assert (named.checked, named.diagnostics) == (True, ())
        assert (await corral.check(source)).diagnostics != ()
