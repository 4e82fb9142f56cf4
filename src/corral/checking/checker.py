"""The checks of one `Corral`: a language server for each language, and the tools that programs are checked against."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from corral.checking.check import Check, names_something
from corral.checking.kinds import SERVERS, ServerKind
from corral.checking.lsp import ServerLost
from corral.checking.python import PythonCheck
from corral.checking.server import LanguageServer
from corral.checking.toolset import ToolSet, ToolSets
from corral.checking.typescript import TypeScriptCheck
from corral.checking.verdict import Verdict, verdict_on
from corral.checking.workspace import Document
from corral.errors import ProgramRejected
from corral.logs import get_logger
from corral.programs import TypedProgram, TypedPython, typed_python, typed_typescript
from corral.tools import ToolRegistry
from corral.types import Language, References

__all__ = ["Begun", "Checker"]

logger = get_logger("corral.checking")

_CHECK_SECONDS = 3.0
"""For one program. A usual one takes a hundredth of that; a server that takes longer is started anew."""
_WAIT_SECONDS = 10.0
"""How long a program waits for a server that starts, and while others are checked, before it goes unchecked. Deno's
server takes one to four seconds to start, the others tenths of one."""
_LONG_WAIT_SECONDS = 30.0
"""The same of one that must not go unchecked."""
_BEGUN_CHARS = 8_000
"""Longer programs are read in a thread."""


class Checker:
    """Checks programs. Its methods may be called from any thread."""

    def __init__(self, servers: Sequence[ServerKind] = SERVERS) -> None:
        self._kinds = servers
        """What there may be for each language, the best first."""
        self._lock = threading.Lock()
        self._servers: dict[Language, LanguageServer | None] = {}
        self._sets = ToolSets()
        self._closed = False

    def start(self, language: Language, tools: ToolRegistry) -> None:
        """Has the server of a language started in the background, for these tools first, unless that has been done."""
        with self._lock:
            if self._closed or language in self._servers:
                return
            server = self._servers[language] = self._find(language)
        if server is not None:
            server.start(partial(self._declared, tools, language))

    def server(self, language: Language) -> LanguageServer | None:
        """What checks programs in a language, if it has been started and there is one."""
        return self._servers.get(language)

    def ready(self, language: Language) -> bool:
        """Whether a program in this language would be checked now."""
        server = self._servers.get(language)
        return server is not None and server.ready

    def wait(self, language: Language, seconds: float) -> bool:
        """Waits until the server of a language has been started. Tells if it is ready."""
        server = self._servers.get(language)
        return server is not None and server.wait(seconds)

    def check(
        self,
        source: str,
        language: Language,
        tools: ToolRegistry,
        env: bool,
        must: bool = False,
        references: References | None = None,
    ) -> Verdict:
        """Checks a program. It blocks: until a server that starts is ready, and others have been checked.

        `references` are those of the program, if they are known. `env`: the program finds a `process` with its
        environment. `must`: it waits for longer.
        """
        server = self._servers.get(language)
        if server is None:
            return Verdict(unchecked=f"there is no language server for {language} here")
        seconds = _LONG_WAIT_SECONDS if must else _WAIT_SECONDS
        until = time.monotonic() + seconds
        try:
            program = _typed(source, language)
            if program is None:
                return Verdict(unchecked="it cannot be parsed as a whole")
            if not names_something(program.root):
                return Verdict()
            if not server.wait(seconds):
                return Verdict(unchecked="the language server did not start in time")
            declared = self._sets.declared(tools, language, references, must=must)
            if declared is None:
                return Verdict(unchecked="it may call any of so many tools that declaring them all takes a while")
            check = _check_of(program, declared, env=env)
            turn = max(0.0, until - time.monotonic())
            with server.document(declared.declarations.text, turn_seconds=turn, seconds=_CHECK_SECONDS) as document:
                if document is None:
                    return Verdict(unchecked="the language server was busy with other programs")
                verdict = verdict_on(check.findings(document), check.locate)
        except Exception as error:
            return _failed(error, language)
        declared.remember(source, verdict, env=env)
        return verdict

    def begin(
        self, source: str, language: Language, tools: ToolRegistry, env: bool, references: References | None = None
    ) -> Begun | Verdict | None:
        """Puts a program before a server that is free now, and does not wait. A verdict: it is known already.

        None: that takes longer; `check` it.
        """
        server, declared = self._servers.get(language), self._sets.known(tools, language, references)
        if server is None or declared is None or len(source) > _BEGUN_CHARS or not server.ready:
            return None
        if (known := declared.verdicts.get((source, env))) is not None:
            return known
        try:
            program = _typed(source, language)
            if program is None:
                return None
            if not names_something(program.root):
                return Verdict()
            check = _check_of(program, declared, env=env)
            with ExitStack() as stack:
                turn = server.document(declared.declarations.text, turn_seconds=0, seconds=_CHECK_SECONDS, at_once=True)
                if (document := stack.enter_context(turn)) is None:
                    return None
                document.begin(check.text.text)
                return Begun(source, env, check, document, stack.pop_all())
        except Exception as error:
            _failed(error, language)
            return None

    def close(self) -> None:
        """Ends the servers. Idempotent."""
        with self._lock:
            self._closed = True
            servers = list(self._servers.values())
        for server in servers:
            if server is not None:
                server.close()

    def _find(self, language: Language) -> LanguageServer | None:
        """The best server for a language that is here."""
        for kind in self._kinds:
            if kind.language == language and (engine := kind.engine()) is not None:
                return LanguageServer(kind, engine)
        return None

    def _declared(self, tools: ToolRegistry, language: Language) -> str:
        declared = self._sets.declared(tools, language, References())
        return "" if declared is None else declared.declarations.text


class Begun:
    """A check that is under way on an event loop. It has the server's turn until it is closed."""

    def __init__(self, source: str, env: bool, check: Check, document: Document, resources: ExitStack) -> None:
        self._source = source
        self._env = env
        self._check = check
        self._document = document
        self._resources = resources

    async def verdict(self) -> Verdict | None:
        """The verdict, if all is well; None if there is more to ask, or the server was lost."""
        tools = self._check.tools
        try:
            with self._resources:
                remarks = await self._document.finish()
        except Exception as error:
            _failed(error, tools.language)
            return None
        if not self._check.is_settled(remarks):
            return None
        verdict = Verdict()
        tools.remember(self._source, verdict, env=self._env)
        return verdict

    def close(self) -> None:
        """Lets others have their turn. Idempotent."""
        self._resources.close()


def _typed(source: str, language: Language) -> TypedProgram | TypedPython | None:
    """A program as it is to be read; None if it cannot be.

    Raises:
        ProgramRejected: as when it is prepared.
    """
    return typed_python(source) if language == "python" else typed_typescript(source)


def _check_of(program: TypedProgram | TypedPython, tools: ToolSet, *, env: bool) -> Check:
    if isinstance(program, TypedPython):
        return PythonCheck(program, tools)
    return TypeScriptCheck(program, tools, env=env)


def _failed(error: Exception, language: Language) -> Verdict:
    """Logs why a program goes unchecked."""
    if isinstance(error, ServerLost):
        logger.warning("the language server for %s was lost over a program: %s", language, error)
        return Verdict(unchecked="the language server gave no answer")
    if isinstance(error, ProgramRejected):  # it is rejected for that when it is prepared
        return Verdict(unchecked="it is no program")
    logger.error("a check failed, so its program goes unchecked", exc_info=error)
    return Verdict(unchecked="the check failed")
