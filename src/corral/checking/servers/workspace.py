"""Running language server: its jail, its files, and requests about programs."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import anyio

from corral.checking.servers.lsp import PENDING, LspClient, ServerLost
from corral.checking.servers.specs import ServerKind
from corral.containment import TIERS
from corral.errors import StartFailed
from corral.jail import Engine, Jail, LauncherClient, Mount, in_best_jail
from corral.jail.jail import v8_environment
from corral.jail.process import ContainedProcess
from corral.jail.temporary import TemporaryFolder

MODULE = "corral_tools_0"
"""Module of the declarations, for languages that import them. The slot's number replaces the last digit."""
_MODULES = "node_modules"
_PACKAGES = f"/packages/{_MODULES}"
_START_SECONDS = 60.0
"""Seconds for a start. Deno's server takes one to four, and longer on a busy machine."""
_MAX_ITEMS = 1000
_MAX_REMARKS = 300
_MAX_PLACE = 1 << 31
_MALFORMED = (LookupError, TypeError, ValueError, AttributeError, OverflowError)
"""Errors that reading a malformed answer can raise."""
_CAPABILITIES: dict[str, Any] = {
    "workspace": {"configuration": True},
    "textDocument": {"diagnostic": {}, "definition": {}, "typeDefinition": {}},
}


class Span(NamedTuple):
    """Range of a text as in the protocol: lines and characters from 0, characters in UTF-16 units."""

    line: int
    character: int
    end_line: int
    end_character: int


class Remark(NamedTuple):
    """Diagnostic of a server about a span of a program. `code` is a number or the name of a rule."""

    severity: int
    """DiagnosticSeverity of the protocol: 1 is an error, 2 a warning, 4 a hint."""
    code: str
    message: str
    span: Span


class Location(NamedTuple):
    """Location of a definition: in the tool declarations, in the program, or elsewhere."""

    declared: bool
    own: bool
    span: Span


class Workspace:
    """Server in a jail, and its directory. Not thread-safe; every method can raise ServerLost."""

    def __init__(self, kind: ServerKind, packages: Path | None = None) -> None:
        self.kind = kind
        self._packages = packages
        """Folder `node_modules` that the server reads."""
        self._slots: OrderedDict[str, int] = OrderedDict()
        """Slots by declarations, least recently used first."""
        self._versions = itertools.count(1)
        self._written: set[str] = set()
        self._resources = contextlib.ExitStack()
        self._launcher = LauncherClient()
        self._process: ContainedProcess | None = None
        self._killed = False

    def open(self, engine: Engine) -> None:
        """Starts the server.

        Raises:
            StartFailed: the server starts neither in a jail nor without one, or is killed meanwhile.
        """
        try:
            self._folder = TemporaryFolder()
            self._resources.callback(self._folder.close)
            _fill(self._folder.path, self.kind)
        except OSError as error:
            raise StartFailed(f"cannot write its files to a temporary directory: {error}") from error
        self._resources.callback(self._launcher.close)
        if self._packages is not None:
            engine = replace(engine, mounts=(*engine.mounts, Mount(self._packages, _PACKAGES)))
        self._client, self._root = self._begin(engine)

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    def cpu_time(self) -> float:
        """Returns the processor seconds used so far; 0 after its end."""
        return 0.0 if self._process is None else self._process.cpu_time()

    def resident_bytes(self) -> int:
        """Returns the resident memory in bytes, from /proc/PID/statm (proc_pid_statm(5)); 0 after its end."""
        try:
            return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
        except (OSError, IndexError):
            return 0

    def document(self, declarations: str, deadline: float) -> Document:
        slot = self._slots.pop(declarations, None)
        if slot is None:
            slot = len(self._slots)
            if slot == self.kind.slots:
                _, slot = self._slots.popitem(last=False)
            self.write(self.kind.declarations.format(slot=slot), declarations)
        self._slots[declarations] = slot
        return Document(self, slot, deadline)

    def write(self, path: str, text: str) -> None:
        """Replaces the text of a file, as the server sees it."""
        document: dict[str, object] = {"uri": self.uri(path), "version": next(self._versions)}
        if path in self._written:
            change = {"textDocument": document, "contentChanges": [{"text": text}]}
            self._client.notify("textDocument/didChange", change)
        else:
            document |= {"languageId": self.kind.language, "text": text}
            self._client.notify("textDocument/didOpen", {"textDocument": document})
            self._written.add(path)

    def ask(self, method: str, path: str, deadline: float, **params: object) -> Any:
        """Sends a request about a file and returns the result."""
        return self._client.request(method, {"textDocument": {"uri": self.uri(path)}, **params}, deadline=deadline)

    def holds(self, declarations: str) -> bool:
        """True if the server already has these declarations."""
        return declarations in self._slots

    @property
    def client(self) -> LspClient:
        return self._client

    def uri(self, path: str) -> str:
        return f"{self._root}/{path}"

    def kill(self) -> None:
        """Ends the process. Can be called from any thread; a pending request then raises ServerLost."""
        self._killed = True
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """Ends the process and removes the directory. Idempotent."""
        self._killed = True
        if self._process is not None:
            self._process.close()
        self._resources.close()

    def _begin(self, engine: Engine) -> tuple[LspClient, str]:
        def initialize(jail: Jail) -> tuple[LspClient, str]:
            if self._killed:
                raise StartFailed("it is no longer needed")
            try:
                return self._initialized(jail)
            except ServerLost as error:
                raise StartFailed(str(error)) from error

        return in_best_jail(reversed(TIERS), engine, self._folder.path, initialize)

    def _initialized(self, jail: Jail) -> tuple[LspClient, str]:
        kind, deadline = self.kind, time.monotonic() + _START_SECONDS
        if self._packages is not None:
            link = self._folder.path / _MODULES
            link.unlink(missing_ok=True)
            link.symlink_to(_PACKAGES if jail.tier == "namespaces" else self._packages)
        environment = {**kind.environment, **(v8_environment() if kind.compiles else {})}
        plan = jail.plan(kind.arguments, environment, data_bytes=kind.data_bytes)
        process = self._process = ContainedProcess.spawn(self._launcher, replace(plan, scratch=self._folder.home))
        try:
            client = LspClient(process, kind.settings)
            root = Path(jail.path("")).as_uri()
            folder = {"uri": root, "name": "programs"}
            params: dict[str, Any] = {
                "processId": None,
                "rootUri": root,
                "workspaceFolders": [folder],
                "capabilities": _CAPABILITIES,
                "initializationOptions": dict(kind.options),
            }
            client.request("initialize", params, deadline=deadline)
            jail.verify(process.pid)
            client.notify("initialized", {})
        except BaseException:
            process.close()
            raise
        return client, root


class Document:
    """Program as a server's document, with a deadline (`time.monotonic`). Every method can raise ServerLost."""

    def __init__(self, workspace: Workspace, slot: int, deadline: float) -> None:
        kind = workspace.kind
        self._workspace = workspace
        self._path, self._declarations = kind.program.format(slot=slot), kind.declarations.format(slot=slot)
        self._deadline = deadline
        self._pending = 0
        self._module = Path(self._declarations).stem

    def write(self, text: str) -> None:
        """Sets the program's text. An import of `MODULE` is redirected to this slot's declarations."""
        self._workspace.write(self._path, text.replace(MODULE, self._module, 1))

    def remarks(self) -> list[Remark]:
        """Returns the server's diagnostics."""
        return _remarks(self._ask("textDocument/diagnostic"))

    def begin(self, text: str) -> None:
        """Replaces the program and requests its diagnostics, which `finish` returns. Neither call blocks."""
        self.write(text)
        params = {"textDocument": {"uri": self._workspace.uri(self._path)}}
        self._pending = self._workspace.client.post("textDocument/diagnostic", params)

    async def finish(self) -> list[Remark]:
        """Waits for the diagnostics that `begin` requested."""
        client = self._workspace.client
        with anyio.move_on_after(self._deadline - time.monotonic()):
            while (report := client.poll(self._pending)) is PENDING:
                await client.changed()
            return _remarks(report)
        raise ServerLost("it did not answer in time")

    def outwait(self) -> None:
        """Blocks until the request sent by `begin` is answered, so that the server is free."""
        self._workspace.client.await_result(self._pending, deadline=self._deadline)

    def definitions(self, line: int, character: int) -> list[Location]:
        """Returns the definitions of the name at a position, counted as in a `Span`."""
        return self._locations("textDocument/definition", line, character, whole=False)

    def types(self, line: int, character: int) -> list[Location]:
        """Returns the definitions of the type at a position, including array elements and union members."""
        return self._locations("textDocument/typeDefinition", line, character, whole=True)

    def _locations(self, method: str, line: int, character: int, *, whole: bool) -> list[Location]:
        answer = self._ask(method, position={"line": line, "character": character})
        try:
            items = [] if answer is None else [answer] if "range" in answer or "targetRange" in answer else answer
            return [self._location(each, whole=whole) for each in items[:_MAX_ITEMS]]
        except _MALFORMED as error:
            raise ServerLost("its locations are malformed") from error

    def _location(self, item: Mapping[str, Any], *, whole: bool) -> Location:
        """Reads the protocol's Location or LocationLink. The latter has one range for the name and one for the
        whole."""
        if "uri" in item:
            uri, where = item["uri"], item["range"]
        else:
            uri, where = item["targetUri"], item["targetRange" if whole else "targetSelectionRange"]
        uris = self._workspace.uri(self._declarations), self._workspace.uri(self._path)
        return Location(uri == uris[0], uri == uris[1], _span(where))

    def _ask(self, method: str, **params: object) -> Any:
        return self._workspace.ask(method, self._path, self._deadline, **params)


def _fill(directory: Path, kind: ServerKind) -> None:
    for path, text in kind.written().items():
        file = directory / path
        file.parent.mkdir(mode=0o755, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def _remarks(report: Any) -> list[Remark]:
    try:
        errors_first = sorted(report["items"], key=lambda each: each.get("severity", 1))
        return [_remark(each) for each in errors_first[:_MAX_REMARKS]]
    except _MALFORMED as error:
        raise ServerLost("its diagnostics are malformed") from error


def _remark(item: Mapping[str, Any]) -> Remark:
    return Remark(int(item.get("severity", 1)), str(item.get("code", "")), str(item["message"]), _span(item["range"]))


def _span(range_: Mapping[str, Mapping[str, int]]) -> Span:
    start, end = range_["start"], range_["end"]
    span = Span(int(start["line"]), int(start["character"]), int(end["line"]), int(end["character"]))
    if not all(0 <= each < _MAX_PLACE for each in span):
        raise ValueError(f"invalid range: {span}")
    return span
