"""The checks of one `Corral`: language servers for each language, and the tools that programs are checked against."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import anyio

from corral.checking.base import Check, DeclarationsUnread
from corral.checking.case import Caller, Case, CaseKey
from corral.checking.declared_tools import ToolSet, ToolSets
from corral.checking.languages import CHECKED
from corral.checking.python.check import PythonCheck
from corral.checking.servers.language_server import LanguageServer
from corral.checking.servers.lsp import ServerLost
from corral.checking.servers.specs import SERVERS, ServerKind
from corral.checking.servers.workspace import Workspace
from corral.checking.typescript.check import TypeScriptCheck
from corral.checking.verdict import Verdict, verdict_on
from corral.concurrency.fairness import wait_for_job
from corral.concurrency.threads import run_in_own_thread
from corral.logs import get_logger
from corral.programs import TypedPython, read_program
from corral.programs.syntax.parsing import TooLongToParse
from corral.tools import ToolRegistry
from corral.types import ExecutionContext, Language, Program, References, TrustDomain

T = TypeVar("T")

logger = get_logger("corral.checking")

_CHECK_SECONDS = 3.0
"""For one program. A usual one takes a hundredth of that."""
_FIRST_CHECK_SECONDS = 1.0
"""The same before the first of two servers, behind which everybody waits."""
_WAIT_SECONDS = 10.0
"""Seconds that a program waits for a server that starts, and while others are checked, before it goes unchecked. Deno's
server takes one to four seconds to start, the others tenths of one."""
_LONG_WAIT_SECONDS = 30.0
"""The same of one that must not go unchecked."""
_SUSPECTED_SECONDS = 300.0
"""Seconds that a tenant's programs go to the second server after one of them ended a server, or held others up."""
_HOLDS_UP_SECONDS = 0.03
"""Processor seconds of a check behind which no other tenant is to wait again."""
_MAX_SUSPECTS = 10_000
_SLOW_SECONDS = 60.0
"""Seconds for which it is remembered that a program takes too long to check."""
_IDLE_SECONDS = 600.0
"""Seconds that the second server is kept without use."""
_TOO_SLOW = Verdict(unchecked="it takes too long to check: simplify its types", is_own=True)


class _Servers(NamedTuple):
    """Of one language."""

    first: LanguageServer
    second: LanguageServer
    """For programs that were, or may be, hard to check. It starts with the first of them."""


class Checker:
    """Checks programs. Its methods may be called from any thread, and its coroutines awaited on any event loop."""

    def __init__(self, servers: Sequence[ServerKind] = SERVERS, *, packages: Path | None = None) -> None:
        self._kinds = servers
        """Kinds of servers for each language, the best first."""
        self.packages = packages
        """A `node_modules` with the types of what programs may import."""
        self._lock = threading.Lock()
        self._servers: dict[Language, _Servers | None] = {}
        self._sets = ToolSets()
        self._suspects: OrderedDict[TrustDomain | None, float] = OrderedDict()
        """Until when their programs are checked by the second server."""
        self._doubted: OrderedDict[Caller, CaseKey] = OrderedDict()
        """The program of each caller that was rejected last, if only for what declarations say of results."""
        self._closed = False

    def start(self, language: Language, tools: ToolRegistry) -> None:
        """Has the server of a language started in the background, for these tools first, unless that has been done."""
        with self._lock:
            if self._closed or language in self._servers:
                return
            servers = self._servers[language] = self._find(language)
        if servers is not None:
            servers.first.start(partial(self._declared, tools, language))

    def server(self, language: Language) -> LanguageServer | None:
        """The servers for a language, if they have been started and there are any."""
        servers = self._servers.get(language)
        return None if servers is None else servers.first

    def ready(self, language: Language) -> bool:
        """True if a program in this language would be checked now."""
        server = self.server(language)
        return server is not None and server.ready

    def wait(self, language: Language, seconds: float) -> bool:
        """Waits until the server of a language has been started. Tells if it is ready."""
        server = self.server(language)
        return server is not None and server.wait(seconds)

    def check(
        self,
        source: str,
        language: Language,
        tools: ToolRegistry,
        env: bool,
        must: bool = False,
        context: ExecutionContext | None = None,
    ) -> Verdict:
        """The verdict on a program. It blocks.

        Raises:
            ProgramRejected: as when it is prepared.
        """
        case = Case(read_program(source, language), tools, env=env, must=must, context=context)
        with ThreadPoolExecutor(1) as own:  # where no event loop runs
            return own.submit(anyio.run, self.verdict, case).result()

    async def verdict(self, case: Case) -> Verdict:
        """Checks a program. It waits until a server that starts is ready, and others have been checked."""
        servers = self._servers.get(case.language)
        if servers is None:
            return Verdict(unchecked=f"there is no language server for {case.language} here")
        until = time.monotonic() + (_LONG_WAIT_SECONDS if case.must else _WAIT_SECONDS)
        try:
            if case.is_light and case.is_nameless:
                return Verdict()
            if not servers.first.ready:
                await _outcome(servers.first, case, lambda _: None, until)
            declared = await self._declared_for(case)
            if declared is None:
                return Verdict(unchecked="it may call any of so many tools that declaring them all takes a while")
            return declared.known(case) or await self._checked(case, declared, servers, until)
        except TimeoutError:
            is_busy = servers.first.ready
            why = "was busy with other programs" if is_busy else "did not start in time"
            return Verdict(unchecked=f"the language server {why}")
        except Exception as error:
            return _failed(error, case.language)

    def reconsidered(self, case: Case, verdict: Verdict) -> Verdict:
        """The verdict on a program that is to run.

        A caller that sends the same program again, right after it was rejected only for what declarations say of
        results, knows better: it runs with warnings.
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

    def begin(self, case: Case) -> PendingCheck | Verdict | None:
        """Puts a program before a server that is free now, and does not wait. A verdict: it is known already.

        None: that takes longer; ask for its `verdict`.
        """
        server, declared = self.server(case.language), self._sets.known(case.tools, case.language, case.references)
        if server is None or declared is None:
            return None
        if (known := declared.known(case)) is not None:
            return known
        if not server.ready or self._is_suspect(case.tenant):
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
        return None if workspace is None else PendingCheck(self, case, check, server, workspace)

    async def types_for(self, program: Program, tools: ToolRegistry) -> str:
        """Definitions in Python of the declared types that a program uses as values."""
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
        """The tools that the program is checked against."""
        known = self._sets.known(case.tools, case.language, case.references)
        if known is not None:
            return known
        declare = partial(self._sets.declared, case.tools, case.language, case.references, must=case.must)
        return await run_in_own_thread(declare, abandon_on_cancel=True)

    async def _checked(self, case: Case, declared: ToolSet, servers: _Servers, until: float) -> Verdict:
        """The verdict of the first server, or of the second, if the first was lost over the program, or may be.

        A tenant whose check holds another one up has the next ones made by the second server.
        """
        if case.is_too_dense:
            return _TOO_SLOW
        plan = [(servers.first, min(_FIRST_CHECK_SECONDS, _CHECK_SECONDS)), (servers.second, _CHECK_SECONDS)]
        if self._is_suspect(case.tenant) or case.is_heavy:
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

    def _is_suspect(self, tenant: TrustDomain | None) -> bool:
        return time.monotonic() < self._suspects.get(tenant, 0.0)

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
        """Notes the processor time of a check at its end, while others may wait for the server."""
        if seconds > _HOLDS_UP_SECONDS and server.is_wanted_by_others(case.tenant):
            self._suspect(case)

    def note_loss(self, case: Case, error: ServerLost) -> None:
        """Notes that a server was lost over a program."""
        logger.warning("the language server for %s was lost over a program: %s", case.language, error)
        self._suspect(case)

    def _suspect(self, case: Case) -> None:
        """Has other programs of the tenant checked where they are in nobody's way."""
        with self._lock:
            self._suspects.pop(case.tenant, None)
            self._suspects[case.tenant] = time.monotonic() + _SUSPECTED_SECONDS
            if len(self._suspects) > _MAX_SUSPECTS:
                self._suspects.popitem(last=False)

    def _find(self, language: Language) -> _Servers | None:
        """The best server for a language that is here."""
        for kind in self._kinds:
            if kind.language == language and (engine := kind.engine()) is not None:
                packages = self.packages if kind.reads_packages else None
                return _Servers(LanguageServer(kind, engine, packages), LanguageServer(kind, engine, packages))
        return None

    def _declared(self, tools: ToolRegistry, language: Language) -> str:
        declared = self._sets.declared(tools, language, References())
        return "" if declared is None else declared.declarations.text


class PendingCheck:
    """A check that is under way on an event loop. It has the server for itself until it is closed."""

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
        """The verdict, if all is well; None if there is more to ask, or the server was lost."""
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
        """Lets others have the server, as soon as it has answered. Idempotent."""
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
    return await wait_for_job(server.submit(case.tenant, job), max(0.0, until - time.monotonic()))


def verdict_of(case: Case, declared: ToolSet, seconds: float, workspace: Workspace | None) -> Verdict:
    """Checks a program with a server that is there for nobody else."""
    if workspace is None:
        return Verdict(unchecked="the language server does not start")
    if case.typed is None:
        return Verdict(unchecked="it cannot be parsed as a whole")
    if case.is_nameless:
        return Verdict()
    check = _check_of(case, declared)
    document = workspace.document(declared.declarations.text, time.monotonic() + seconds)
    return verdict_on(check.findings(document), check.locate, CHECKED[case.language].workaround)


def _check_of(case: Case, tools: ToolSet) -> Check:
    if isinstance(case.typed, TypedPython):
        return PythonCheck(case.typed, tools)
    assert case.typed is not None
    return TypeScriptCheck(case.typed, tools, env=case.env, modules=case.modules, network=case.network)


def _failed(error: Exception, language: Language) -> Verdict:
    """Logs why a program goes unchecked."""
    if isinstance(error, TooLongToParse):
        return Verdict(unchecked="it takes too long to parse", is_own=True)
    if isinstance(error, DeclarationsUnread):
        logger.error("programs in %s are not checked: %s; `corral doctor` tries each check", language, error)
        return Verdict(unchecked=str(error))
    logger.error("a check of %s failed, so its program goes unchecked", language, exc_info=error)
    return Verdict(unchecked="the check failed")
