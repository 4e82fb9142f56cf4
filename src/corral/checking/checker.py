"""Checker of one `Corral`, with its language servers and declared tools, and the gate of each program."""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import anyio

from corral.checking.base import Check, DeclarationsUnread
from corral.checking.case import Caller, Case, CaseKey
from corral.checking.declared_tools import ToolSet, ToolSets
from corral.checking.findings import Finding
from corral.checking.languages import CHECKED
from corral.checking.python.check import PythonCheck
from corral.checking.servers.language_server import LanguageServer
from corral.checking.servers.lsp import ServerLost
from corral.checking.servers.specs import SERVERS, ServerKind
from corral.checking.servers.workspace import Workspace
from corral.checking.typescript.check import TypeScriptCheck
from corral.checking.typescript.suspects import absent_names
from corral.checking.verdict import Verdict, verdict_on
from corral.concurrency.fairness import wait_for_job
from corral.concurrency.threads import run_in_own_thread, thread_safe_callback
from corral.errors import ProgramRejected
from corral.logs import get_logger
from corral.programs import TypedProgram, TypedPython
from corral.programs.edits import Places
from corral.programs.syntax.parsing import TooLongToParse
from corral.tools import ToolRegistry
from corral.types import Language, Owner, Program, References

T = TypeVar("T")

logger = get_logger("corral.checking")

_CHECK_SECONDS = 3.0
"""Maximum seconds for one program. A typical one takes a hundredth of that."""
_FIRST_CHECK_SECONDS = 1.0
"""Maximum seconds on the first of two servers, for which all owners queue."""
_WAIT_SECONDS = 10.0
"""Seconds that a program waits for a starting or busy server before it runs unchecked.

Deno's server takes one to four seconds to start, other servers tenths of a second.
"""
_LONG_WAIT_SECONDS = 30.0
"""Seconds that a program waits if it must not run unchecked."""
_SUSPECTED_SECONDS = 300.0
"""Seconds for which an owner's programs go to the second server after one of them crashed or blocked a server."""
_HOLDS_UP_SECONDS = 0.03
"""Processor seconds of a check above which the owner moves to the second server, if others are waiting."""
_MAX_SUSPECTS = 10_000
_LAST = re.compile("[.:]")
"""Separates the last word of a name that an engine lacks, such as `node:zlib` or `Intl.Locale`."""
_SLOW_SECONDS = 60.0
"""Seconds for which a program is remembered as too slow to check."""
_IDLE_SECONDS = 600.0
"""Seconds after which the idle second server is stopped."""
_TOO_SLOW = Verdict(unchecked="it takes too long to check: simplify its types", is_own=True)


class _Servers(NamedTuple):
    """The two servers for one language."""

    first: LanguageServer
    second: LanguageServer
    """Server for programs that are likely to be slow. The first such program starts it."""


class Checker:
    """Checks programs. Methods are thread-safe; coroutines can be awaited on any event loop."""

    def __init__(self, servers: Sequence[ServerKind] = SERVERS, *, packages: Path | None = None) -> None:
        self._kinds = servers
        """Kinds of servers in order of preference."""
        self.packages = packages
        """Folder `node_modules` with the types of the packages that programs may import."""
        self._lock = threading.Lock()
        self._servers: dict[Language, _Servers | None] = {}
        self._sets = ToolSets()
        self._suspects: OrderedDict[Owner | None, float] = OrderedDict()
        """Owners whose programs go to the second server, with the time until when (`time.monotonic`)."""
        self._doubted: OrderedDict[Caller, CaseKey] = OrderedDict()
        """Each caller's last program, if it was rejected only because of declared result types."""
        self._closed = False

    def start(self, language: Language, tools: ToolRegistry) -> None:
        """Starts a language's server in the background, with these tools' declarations. Later calls do nothing."""
        with self._lock:
            if self._closed or language in self._servers:
                return
            servers = self._servers[language] = self._find(language)
        if servers is not None:
            servers.first.start(partial(self._declared, tools, language))

    def server(self, language: Language) -> LanguageServer | None:
        """Returns the first server for a language, if it was started and one is installed."""
        servers = self._servers.get(language)
        return None if servers is None else servers.first

    async def verdict(self, case: Case) -> Verdict:
        """Checks a program. Waits for its turn at a server, which can still be starting."""
        if (verdict := _fit_engine(case)) is not None:
            return verdict
        servers = self._servers.get(case.language)
        if servers is None:
            return Verdict(unchecked=f"no language server for {case.language} is installed")
        until = time.monotonic() + (_LONG_WAIT_SECONDS if case.must else _WAIT_SECONDS)
        try:
            if case.is_light and case.is_nameless:
                return Verdict()
            if not servers.first.ready:
                await _outcome(servers.first, case, lambda _: None, until)
            declared = await self._declared_for(case)
            if declared is None:
                return Verdict(unchecked="it may call any tool, and the declarations of all tools are not ready yet")
            return declared.known(case) or await self._checked(case, declared, servers, until)
        except TimeoutError:
            is_busy = servers.first.ready
            why = "was busy with other programs" if is_busy else "did not start in time"
            return Verdict(unchecked=f"the language server {why}")
        except Exception as error:
            return _failed(error, case.language)

    def reconsidered(self, case: Case, verdict: Verdict) -> Verdict:
        """Turns a rejection into warnings if the caller insists.

        A caller insists by resending the same program right after it was rejected only because of declared result
        types.
        """
        if not self._doubted and not verdict.is_of_results:
            return verdict
        with self._lock:
            before = self._doubted.pop(case.caller, None)
            if verdict.is_of_results:
                self._doubted[case.caller] = case.key
                if len(self._doubted) > _MAX_SUSPECTS:
                    self._doubted.popitem(last=False)
        return verdict.as_warnings() if verdict.is_of_results and before == case.key else verdict

    def begin(self, case: Case) -> _PendingCheck | Verdict | None:
        """Starts a check without waiting. Returns the verdict at once if it is cached.

        Returns None if no server is free or the check takes longer; in that case, call `verdict`.
        """
        if (verdict := _fit_engine(case)) is not None:
            return verdict
        server, declared = self.server(case.language), self._sets.known(case.tools, case.language, case.references)
        if server is None or declared is None:
            return None
        if (known := declared.known(case)) is not None:
            return known
        if not server.ready or self._is_suspect(case.owner):
            return None
        try:
            if not case.is_light or case.typed is None:
                return None
            if case.is_nameless:
                return Verdict()
            check = _check_of(case, declared)
        except Exception as error:
            _failed(error, case.language)
            return None
        workspace = server.seize(declared.declarations.text)
        return None if workspace is None else _PendingCheck(self, case, check, server, workspace)

    async def types_for(self, program: Program, tools: ToolRegistry) -> str:
        """Returns Python definitions of the declared types that a program uses as values."""
        free = () if program.typed is None else program.typed.free
        if not free:
            return ""
        try:
            declared = await self._declared_for(Case(program, tools, must=True))
            return "" if declared is None else await run_in_own_thread(declared.runnable_types, free)
        except TooLongToParse:
            return ""

    def close(self) -> None:
        """Ends the servers. Idempotent."""
        with self._lock:
            self._closed = True
            servers = [each for pair in self._servers.values() if pair is not None for each in pair]
        for server in servers:
            server.close()

    async def _declared_for(self, case: Case) -> ToolSet | None:
        known = self._sets.known(case.tools, case.language, case.references)
        if known is not None:
            return known
        declare = partial(self._sets.declared, case.tools, case.language, case.references, must=case.must)
        return await run_in_own_thread(declare, abandon_on_cancel=True)

    async def _checked(self, case: Case, declared: ToolSet, servers: _Servers, until: float) -> Verdict:
        """Checks a program on the first server, or on the second if it crashes the first or is likely to be slow."""
        if case.is_too_dense:
            return _TOO_SLOW
        plan = [(servers.first, min(_FIRST_CHECK_SECONDS, _CHECK_SECONDS)), (servers.second, _CHECK_SECONDS)]
        if self._is_suspect(case.owner) or case.is_heavy:
            del plan[0]
        elif servers.second.ready:
            servers.second.end_if_idle(_IDLE_SECONDS)
        for server, seconds in plan:
            try:
                verdict = await _outcome(server, case, partial(self._judge, case, declared, seconds, server), until)
            except ServerLost as error:
                self.note_loss(case, error)
                continue
            if verdict.unchecked is None:
                declared.remember(case, verdict)
            return verdict
        declared.remember(case, _TOO_SLOW, seconds=_SLOW_SECONDS)
        return _TOO_SLOW

    def _is_suspect(self, owner: Owner | None) -> bool:
        return time.monotonic() < self._suspects.get(owner, 0.0)

    def _judge(
        self, case: Case, declared: ToolSet, seconds: float, server: LanguageServer, workspace: Workspace | None
    ) -> Verdict:
        before = time.thread_time(), 0.0 if workspace is None else workspace.cpu_time()
        try:
            return verdict_of(case, declared, seconds, workspace)
        finally:
            if workspace is not None:
                self.note_cost(case, server, time.thread_time() - before[0] + workspace.cpu_time() - before[1])

    def note_cost(self, case: Case, server: LanguageServer, seconds: float) -> None:
        """Marks the owner as suspect if its check took long while others were waiting."""
        if seconds > _HOLDS_UP_SECONDS and server.is_wanted_by_others(case.owner):
            self._suspect(case)

    def note_loss(self, case: Case, error: ServerLost) -> None:
        """Logs that a program crashed or blocked a server, and marks its owner as suspect."""
        logger.warning("the language server for %s was lost while checking a program: %s", case.language, error)
        self._suspect(case)

    def _suspect(self, case: Case) -> None:
        """Sends the owner's next programs to the second server."""
        with self._lock:
            self._suspects.pop(case.owner, None)
            self._suspects[case.owner] = time.monotonic() + _SUSPECTED_SECONDS
            if len(self._suspects) > _MAX_SUSPECTS:
                self._suspects.popitem(last=False)

    def _find(self, language: Language) -> _Servers | None:
        """Returns servers of the best kind that is installed for a language."""
        for kind in self._kinds:
            if kind.language == language and (engine := kind.engine()) is not None:
                packages = self.packages if kind.reads_packages else None
                return _Servers(LanguageServer(kind, engine, packages), LanguageServer(kind, engine, packages))
        return None

    def _declared(self, tools: ToolRegistry, language: Language) -> str:
        declared = self._sets.declared(tools, language, References())
        return "" if declared is None else declared.declarations.text


class _PendingCheck:
    """Check in progress on an event loop. It uses the server exclusively until it is closed."""

    def __init__(
        self, checker: Checker, case: Case, check: Check, server: LanguageServer, workspace: Workspace
    ) -> None:
        self._checker = checker
        self._case = case
        self._check = check
        self._server: LanguageServer | None = server
        self._workspace = workspace
        self._spent_before = workspace.cpu_time()
        try:
            self._document = workspace.document(check.tools.declarations.text, time.monotonic() + _FIRST_CHECK_SECONDS)
            self._document.begin(check.text.text)
        except BaseException:
            self._hand_back()
            raise

    async def verdict(self) -> Verdict | None:
        """Returns the verdict if the program is correct; None if questions remain or the server was lost."""
        try:
            remarks = await self._document.finish()
        except ServerLost as error:
            self._checker.note_loss(self._case, error)
            if self._server is not None:
                self._server.lose()
            self._hand_back()
            return None
        if self._server is not None:
            self._checker.note_cost(self._case, self._server, self._workspace.cpu_time() - self._spent_before)
        self._hand_back()
        if not self._check.is_settled(remarks):
            return None
        verdict = Verdict()
        self._check.tools.remember(self._case, verdict)
        return verdict

    def close(self) -> None:
        """Releases the server as soon as it has answered. Idempotent."""
        self._hand_back(self._outwait)

    def _hand_back(self, rest: Callable[[Workspace | None], object] | None = None) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.hand_back(rest)

    def _outwait(self, _: Workspace | None) -> None:
        try:
            self._document.outwait()
        except ServerLost as error:
            self._checker.note_loss(self._case, error)
            raise


async def _outcome(server: LanguageServer, case: Case, job: Callable[[Workspace | None], T], until: float) -> T:
    return await wait_for_job(server.submit(case.owner, job), max(0.0, until - time.monotonic()))


def verdict_of(case: Case, declared: ToolSet, seconds: float, workspace: Workspace | None) -> Verdict:
    """Checks a program on a server that the caller holds exclusively."""
    if workspace is None:
        return Verdict(unchecked="the language server does not start")
    if case.typed is None:
        return Verdict(unchecked="it does not parse completely")
    if case.is_nameless:
        return Verdict()
    check = _check_of(case, declared)
    document = workspace.document(declared.declarations.text, time.monotonic() + seconds)
    typed = case.program.typed
    start = -1 if typed is None else typed.start
    findings = [each for each in check.findings(document) if each.offset >= start]
    return verdict_on(findings, check.locate, CHECKED[case.language].workaround)


def _fit_engine(case: Case) -> Verdict | None:
    """Refuses a program that uses globals or modules which its engine lacks. Returns None for others."""
    typed, source = case.program.typed, case.source
    loads = case.modules and ("import" in source or "require" in source)
    names = [name for name in case.lacks if (loads or not name.startswith("node:")) and _LAST.split(name)[-1] in source]
    if not names or typed is None or not case.is_light or not isinstance(case.typed, TypedProgram):
        return None
    findings = [
        Finding(
            code="absent",
            message=f"`{name}` is absent in the engine that runs this program.",
            offset=node.start_byte,
            kind="absent",
            hint=case.lacks[name],
        )
        for node, name in absent_names(case.typed.root, names)
    ]
    return verdict_on(findings, Places(typed.text, typed.positions).at) if findings else None


def _check_of(case: Case, tools: ToolSet) -> Check:
    if isinstance(case.typed, TypedPython):
        return PythonCheck(case.typed, tools)
    assert case.typed is not None
    return TypeScriptCheck(case.typed, tools, env=case.env, modules=case.modules, network=case.network)


def _failed(error: Exception, language: Language) -> Verdict:
    if isinstance(error, TooLongToParse):
        return Verdict(unchecked="it takes too long to parse", is_own=True)
    if isinstance(error, DeclarationsUnread):
        logger.error("programs in %s are not checked: %s; `corral doctor` tries each check", language, error)
        return Verdict(unchecked=str(error))
    logger.error("a check of a program in %s failed; the program is unchecked", language, exc_info=error)
    return Verdict(unchecked="the check failed")


class Gate:
    """Gate of one program. The program starts during the check, so the check usually costs no time."""

    def __init__(self, checker: Checker, case: Case) -> None:
        self._checker = checker
        self._case = case
        started = checker.begin(case)
        self.verdict = checker.reconsidered(case, started) if isinstance(started, Verdict) else None
        self._pending = started if isinstance(started, _PendingCheck) else None
        self._decided = Future[None]()
        if self.verdict is not None:
            self._decide()

    @property
    def is_decided(self) -> bool:
        return self._decided.done()

    @property
    def is_open(self) -> bool:
        """True if the program may continue: its check passed, or was neither possible nor required."""
        if not self._decided.done():
            return False
        return self.verdict.rejection is None if self.is_checked and self.verdict else not self._case.must

    @property
    def is_checked(self) -> bool:
        return self.verdict is not None and self.verdict.unchecked is None

    @property
    def rejection(self) -> ProgramRejected | None:
        """Error for a program that must not run; None if the program itself is not the reason."""
        if self.verdict is None:
            return None
        if self._case.must and self.verdict.is_own:
            return ProgramRejected(f"the program could not be checked, which is required: {self.verdict.unchecked}")
        return self.verdict.rejection

    async def decide(self) -> None:
        """Waits for the verdict, then opens or closes the gate."""
        try:
            if self._pending is not None:
                self.verdict = await self._pending.verdict()
            if self.verdict is None:
                self.verdict = await self._checker.verdict(self._case)
            self.verdict = self._checker.reconsidered(self._case, self.verdict)
        finally:
            self.close()

    def close(self) -> None:
        """Opens or closes the gate for good, with or without a verdict. Idempotent."""
        if self._pending is not None:
            self._pending.close()
        self._decide()

    def _decide(self) -> None:
        if not self._decided.done():
            self._decided.set_result(None)

    async def wait(self) -> None:
        """Waits for the decision, on any event loop."""
        decided = anyio.Event()
        notify = thread_safe_callback(decided.set)
        self._decided.add_done_callback(lambda _: notify())
        await decided.wait()
