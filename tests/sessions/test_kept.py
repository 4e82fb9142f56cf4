"""Sessions that a server keeps for callers who name one, and stores that keep their files longer."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from corral import ConfigError, Corral, ExecutionContext
from corral.errors import FileError
from corral.events import ConsoleOutput
from corral.sandboxes import SandboxProvider
from corral.sandboxes.selection import Sandboxes
from corral.sessions import DirectoryStore, KeptSessions, Mount, Scratch, Sessions, Store, StoredFile, StoreKey
from corral.testing import FakeGuest, FakeSandbox
from corral.types import Language
from tests.until import until

pytestmark = pytest.mark.anyio

PIECE = 1 << 14
LIST = "import os\nreturn sorted(os.listdir())"


def caller(session: str, user: str = "ann", organization: str | None = None) -> ExecutionContext:
    return ExecutionContext(user_id=user, session_id=session, organization_id=organization)


async def run(corral: Corral, source: str, context: ExecutionContext) -> Any:
    result = await corral.execute(source, language="python", context=context)
    result.raise_for_error()
    return result.value


def kept(corral: Corral) -> KeptSessions:
    sessions = corral._kept_sessions  # pyright: ignore[reportPrivateUsage]
    assert sessions is not None
    return sessions


async def test_a_session_is_of_its_organization_user_and_name(warm: Sandboxes) -> None:
    async with Corral(sessions=Sessions(), sandbox=warm, check=False) as corral:
        await run(corral, "open('a.txt', 'w').write('x')", caller("one"))
        assert await run(corral, LIST, caller("one")) == ["a.txt"]
        for other in (caller("two"), caller("one", "bob"), caller("one", "ann", "acme")):
            assert await run(corral, LIST, other) == []
        without = await corral.execute(LIST, language="python", context=ExecutionContext(user_id="ann"))
        assert without.files is None
        assert "guest" in without.value
        assert len(kept(corral)) == 4
    assert len(kept(corral)) == 0


async def test_programs_that_come_at_once_share_one_session(warm: Sandboxes) -> None:
    async with Corral(sessions=Sessions(), sandbox=warm, check=False) as corral:
        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(run, corral, f"open('{number}', 'w').close()", caller("one"))
        assert await run(corral, LIST, caller("one")) == [str(number) for number in range(6)]


async def test_idle_ones_are_closed_although_nobody_comes(warm: Sandboxes) -> None:
    async with Corral(sessions=Sessions(idle_seconds=0.2), sandbox=warm, check=False) as corral:
        await run(corral, "open('a.txt', 'w').close()", caller("one"))
        await until(lambda: len(kept(corral)) == 0)
        assert await run(corral, LIST, caller("one")) == []


async def test_of_too_many_the_one_that_is_idle_for_longest_goes(warm: Sandboxes) -> None:
    async with Corral(sessions=Sessions(max_open=2), sandbox=warm, check=False) as corral:
        for name in ("one", "two", "one", "three"):
            await run(corral, "open('a.txt', 'a').write('x')", caller(name))
        assert len(kept(corral)) == 2
        assert await run(corral, "return open('a.txt').read()", caller("one")) == "xx"
        assert await run(corral, LIST, caller("two")) == []


async def test_whoever_has_most_sessions_loses_the_first(warm: Sandboxes) -> None:
    async with Corral(sessions=Sessions(max_open=3), sandbox=warm, check=False) as corral:
        await run(corral, "open('a.txt', 'w').close()", caller("talk", "bob"))
        for name in ("one", "two", "three", "four"):
            await run(corral, "open('a.txt', 'w').close()", caller(name, "eve"))
        assert await run(corral, LIST, caller("talk", "bob")) == ["a.txt"]
        assert await run(corral, LIST, caller("four", "eve")) == ["a.txt"]
        assert await run(corral, LIST, caller("one", "eve")) == []


async def test_programs_of_one_user_leave_others_a_session(warm: Sandboxes) -> None:
    endless = "import time\nopen('began', 'w').close()\nwhile True: time.sleep(1)"
    async with Corral(sessions=Sessions(max_open=2), sandbox=warm, check=False) as corral, AsyncExitStack() as running:
        for name in ("one", "two"):
            program = corral.start(endless, language="python", context=caller(name, "eve"))
            await running.enter_async_context(program)
        await until(lambda: len(kept(corral)) == 2)
        with pytest.raises(ConfigError, match="this user has a fair share of them"):
            await run(corral, LIST, caller("three", "eve"))
        assert await run(corral, LIST, caller("talk", "bob")) == []


async def test_no_session_that_has_a_program_is_closed(warm: Sandboxes) -> None:
    async with Corral(sessions=Sessions(max_open=1), sandbox=warm, check=False) as corral:
        source = "print('began')\nimport asyncio\nawait asyncio.sleep(3600)"
        async with corral.start(source, language="python", context=caller("one")) as running:
            async for event in running:
                if isinstance(event, ConsoleOutput):
                    with pytest.raises(ConfigError, match="1 sessions are running programs"):
                        await run(corral, LIST, caller("two"))
                    running.cancel()


class Slow:
    """Sessions whose opening and closing can be held up, in the order in which they happen."""

    def __init__(self) -> None:
        self.happened: list[str] = []
        self.opens, self.closes = anyio.Event(), anyio.Event()
        self.opens.set()
        self.kept = KeptSessions(Sessions(idle_seconds=3600), self._open)

    async def _open(self, context: ExecutionContext) -> Any:
        self.happened.append(f"opens {context.session_id}")
        await self.opens.wait()

        async def aclose() -> None:
            await self.closes.wait()
            self.happened.append(f"closed {context.session_id}")

        return SimpleNamespace(aclose=aclose)

    async def use(self, name: str) -> None:
        async with self.kept.session(caller(name)):
            pass

    async def close_idle(self) -> None:
        for each in self.kept._kept.values():  # pyright: ignore[reportPrivateUsage]
            each.idle_since = -math.inf
        await self.kept.close_idle()


async def test_two_that_close_idle_sessions_at_once_close_each_once() -> None:
    slow = Slow()
    async with slow.kept.session(caller("one")), slow.kept.session(caller("two")):
        pass
    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(slow.close_idle)
        await anyio.wait_all_tasks_blocked()
        slow.closes.set()
    await slow.kept.aclose()
    assert sorted(slow.happened) == ["closed one", "closed two", "opens one", "opens two"]


async def test_a_session_is_opened_anew_once_the_last_one_is_closed_and_stored() -> None:
    slow = Slow()
    await slow.use("one")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(slow.close_idle)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(slow.use, "one")
        await anyio.wait_all_tasks_blocked()
        slow.closes.set()
    assert slow.happened == ["opens one", "closed one", "opens one"]
    await slow.kept.aclose()


async def test_a_session_that_is_being_opened_is_closed_with_the_others() -> None:
    slow = Slow()
    slow.opens = anyio.Event()
    slow.closes.set()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(slow.use, "one")
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(slow.kept.aclose)
        await anyio.wait_all_tasks_blocked()
        slow.opens.set()
    assert slow.happened == ["opens one", "closed one"]
    assert len(slow.kept) == 0


class Broken(Store):
    async def load(self, key: StoreKey) -> AsyncIterator[StoredFile]:
        yield "a.txt", [b"from the ", b"store"]

    async def save(self, key: StoreKey, changed: Iterator[StoredFile], deleted: Collection[str]) -> None:
        raise RuntimeError("the store is away")


async def test_a_store_brings_files_back_after_the_end_of_the_session(warm: Sandboxes, tmp_path: Path) -> None:
    files = [Mount("/workspace", Scratch(store=DirectoryStore(tmp_path)))]
    async with Corral(sessions=Sessions(files=files), sandbox=warm, check=False) as corral:
        await run(
            corral, "import os\nos.makedirs('d')\nopen('d/a.txt', 'w').write('1')\nopen('b', 'w').close()", caller("s")
        )
        await run(corral, "import os\nos.remove('b')\nopen('d/a.txt', 'a').write('2')", caller("s"))
    async with Corral(sessions=Sessions(files=files), sandbox=warm, check=False) as corral:
        assert await run(corral, "import os\nreturn open('d/a.txt').read(), os.listdir()", caller("s")) == ["12", ["d"]]
        assert await run(corral, LIST, caller("s", "bob")) == []
        result = await corral.execute("1", language="python", context=caller("s"))
        assert result.files is not None
        assert not result.files


async def test_a_store_forgets_folders_that_are_empty(tmp_path: Path) -> None:
    store, key = DirectoryStore(tmp_path), StoreKey("org", "user", "talk", "/workspace")
    await store.save(key, iter([("a/b/c.txt", [b"1"]), ("a/d.txt", [b"2"])]), [])
    await store.save(key, iter([("a/b", [b"a file now"])]), ["a/b/c.txt"])
    assert {path: b"".join(pieces) async for path, pieces in store.load(key)} == {"a/b": b"a file now", "a/d.txt": b"2"}
    await store.save(key, iter(()), ["a/b", "a/d.txt"])
    assert list(tmp_path.glob("*/*")) == []


async def test_what_the_host_writes_is_stored_too(warm: Sandboxes, tmp_path: Path) -> None:
    files = [Mount("/workspace", Scratch(store=DirectoryStore(tmp_path)))]
    async with Corral(sandbox=warm, check=False) as corral:
        async with corral.session(context=caller("s"), files=files) as session:
            await session.files.write_text("a.txt", "x")
        async with corral.session(context=caller("s"), files=files) as session:
            assert await session.files.read_text("a.txt") == "x"
        with pytest.raises(ConfigError, match="give the ExecutionContext a session_id"):
            async with corral.session(files=files):
                pass


async def test_a_store_that_fails_costs_the_program_nothing_and_is_logged(
    warm: Sandboxes, caplog: pytest.LogCaptureFixture
) -> None:
    files = [Mount("/workspace", Scratch(store=Broken()))]
    async with Corral(sessions=Sessions(files=files), sandbox=warm, check=False) as corral:
        result = await corral.execute(
            "open('b', 'w').close()\nreturn open('a.txt').read()", language="python", context=caller("s")
        )
    assert (result.value, result.files) == ("from the store", None)
    assert "the store is away" in caplog.text


class InMemory(Store):
    """Keeps files, and counts the bytes that it has been given."""

    def __init__(self, kept: Mapping[str, int]) -> None:
        self.kept = dict(kept)
        self.read = 0

    async def load(self, key: StoreKey) -> AsyncIterator[StoredFile]:
        for path, size in self.kept.items():
            yield path, self._counted(size)

    def _counted(self, size: int) -> Iterator[bytes]:
        for _ in range(size // PIECE):
            self.read += PIECE
            yield bytes(PIECE)

    async def save(self, key: StoreKey, changed: Iterator[StoredFile], deleted: Collection[str]) -> None:
        for path, pieces in changed:
            self.kept[path] = sum(map(len, pieces))
        for path in deleted:
            del self.kept[path]


async def test_files_with_holes_are_stored_and_exported_within_the_quota_only(
    warm: Sandboxes, caplog: pytest.LogCaptureFixture
) -> None:
    store = InMemory({})
    files = [Mount("/workspace", Scratch(bytes=PIECE * 10, store=store))]
    async with (
        Corral(sandbox=warm, check=False) as corral,
        corral.session(context=caller("s"), files=files, languages=["python"]) as session,
    ):
        holes = f"for name in 'abcd':\n    open(name, 'w').truncate({PIECE * 4})"
        result = await session.execute(holes, language="python")
        assert result.error is not None
        assert (result.error.code, store.kept) == ("files_exceeded", {"a": PIECE * 4, "b": PIECE * 4})
        assert "can hold 163,840 bytes, and its files are 262,144 bytes long" in result.error.message
        assert "not stored, because they are too long or unreadable: 'c', 'd'" in caplog.text
        with pytest.raises(FileError, match="some have holes"):
            await session.files.export()
        result = await session.execute("import os\nos.remove('a')", language="python")
        assert (result.error, store.kept) == (None, {"b": PIECE * 4, "c": PIECE * 4})
        result = await session.execute("import os\nos.remove('d')", language="python")
        assert len([piece async for piece in await session.files.export()]) == 7


async def test_a_store_that_is_too_large_opens_with_what_fits_and_is_not_read_to_its_end(
    warm: Sandboxes, caplog: pytest.LogCaptureFixture
) -> None:
    store = InMemory({f"{number:03}": PIECE * 4 for number in range(100)} | {"a/" * 3000 + "b": 0, "../c": 0})
    files = [Mount("/workspace", Scratch(bytes=PIECE * 10, store=store))]
    async with (
        Corral(sandbox=warm, check=False) as corral,
        corral.session(context=caller("s"), files=files, languages=["python"]) as session,
    ):
        assert [each.path for each in await session.files.list() or ()] == ["000", "001"]
        assert "no room for these files of a session's store: '002', '003'" in caplog.text
        assert store.read < PIECE * 40
        assert len(store.kept) == 102, "what did not fit stays in the store"


class AwayOnce(Store):
    """Keeps files from the second time on."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self._away = True

    async def load(self, key: StoreKey) -> AsyncIterator[StoredFile]:
        for path, data in self.kept.items():
            yield path, [data]

    async def save(self, key: StoreKey, changed: Iterator[StoredFile], deleted: Collection[str]) -> None:
        if self._away:
            self._away = False
            raise RuntimeError("the store is away")
        self.kept.update({path: b"".join(pieces) for path, pieces in changed})


async def test_files_that_a_store_did_not_take_are_stored_at_the_end_of_the_session(warm: Sandboxes) -> None:
    store = AwayOnce()
    files = [Mount("/workspace", Scratch(store=store))]
    async with Corral(sessions=Sessions(files=files), sandbox=warm, check=False) as corral:
        await run(corral, "open('a', 'w').write('x')", caller("s"))
        assert store.kept == {}
    assert store.kept == {"a": b"x"}


async def nothing(_guest: FakeGuest) -> None: ...


async def test_a_sandbox_without_files_says_so() -> None:
    sandbox: dict[Language, str | SandboxProvider] = {"python": FakeSandbox(nothing), "typescript": "deno"}
    async with Corral(sandbox=sandbox, containment="none", sessions=Sessions(), check=False) as corral:
        with pytest.raises(ConfigError, match="sandbox 'fake' does not support session files"):
            await run(corral, "1", caller("s"))


@pytest.mark.parametrize("options", [{"files": ()}, {"idle_seconds": 0}, {"most": 0}])
async def test_settings_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"Sessions\(\)"):
        Sessions(**options)
