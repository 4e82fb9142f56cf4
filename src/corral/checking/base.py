"""Part of a check that all languages share: the program, its tools, and the language server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from tree_sitter import Node

from corral.checking.conditions import Condition, is_only_exit
from corral.checking.declared_tools import DeclaredTool, ToolSet
from corral.checking.findings import NOT_BOUND, NOTHING_SHARED, Finding
from corral.checking.inputs import Flaw, Inputs, Written
from corral.checking.languages import CHECKED
from corral.checking.servers.workspace import Document, Location, Remark
from corral.checking.source_map import CheckedText
from corral.concurrency.cached_property import cached_property
from corral.programs.syntax.parsing import is_a
from corral.types import Position, ToolName

_MAX_QUESTIONS = 300
"""Maximum number of questions to a server about one program, besides its diagnostics.

Values that are not asked about count as the program's own.
"""
_MAX_FLAWED = 50
"""Maximum number of calls whose inputs are reported."""


class DeclarationsUnread(Exception):
    """The server cannot read the tool declarations, so a report without errors means nothing."""


class Check(ABC):
    """Checks one program. Call `findings` at most once. Before that, `text` is the first text for the server."""

    def __init__(self, root: Node, tools: ToolSet, *, start: int) -> None:
        self._start = start  # earlier cells are before it; see `TypedText`
        self.unbound_hint = NOTHING_SHARED if start < 0 else NOT_BOUND
        self.root = root
        self.tools = tools
        self._inputs = Inputs(self.read)
        self._calls: list[tuple[Node, DeclaredTool]] = []
        """Tool calls whose arguments the server reported."""
        self._document: Document | None = None
        self._questions = 0
        self._conditions = 0

    @abstractmethod
    def is_settled(self, remarks: Sequence[Remark]) -> bool:
        """True if, given these diagnostics for `text`, the program is correct and needs no further questions."""

    @abstractmethod
    def locate(self, offset: int) -> Position:
        """Maps a byte offset of the program to a position in the model's source."""

    @abstractmethod
    def judge(self, document: Document) -> list[Finding]:
        """Returns the findings about the program.

        Raises:
            ServerLost: the server did not finish.
            DeclarationsUnread: the server did not read the declarations.
        """

    @abstractmethod
    def read(self, value: Node) -> Written:
        """Reads the literal parts of an expression."""

    @abstractmethod
    def calls_by_name(self) -> Iterator[tuple[Node, str]]:
        """Yields calls by a tool's full name, with that name, unless the program defines its own `tools`."""

    @abstractmethod
    def input_of(self, call: Node) -> Written | None:
        """Returns the input that a call passes to a tool."""

    @abstractmethod
    def is_caught(self, call: Node) -> bool:
        """True if the program handles a failure of the call."""

    @abstractmethod
    def tool_called(self, call: Node) -> DeclaredTool | None:
        """Returns the tool that a call refers to."""

    def findings(self, document: Document) -> list[Finding]:
        """Checks the program, using the document for questions. See `judge`."""
        self._document = document
        return self.judge(document)

    @cached_property
    def flawed(self) -> dict[int, tuple[Node, list[Flaw]]]:
        """Calls whose inputs violate the schema, by start offset. They use the tool's full name."""
        calls = ((call, name) for call, name in self.calls_by_name() if call.start_byte >= self._start)
        pairs = ((call, self._flaws(call, ToolName.parse(name))) for call, name in calls)
        return {
            call.start_byte: (call, flaws) for call, flaws in islice(filter(lambda each: each[1], pairs), _MAX_FLAWED)
        }

    def with_flaws(self, findings: list[Finding]) -> list[Finding]:
        """Adds the schema violations of inputs. They replace warnings about the same inputs."""
        calls = dict(self.flawed)
        for call, tool in self._calls:
            if call.start_byte not in calls:
                calls[call.start_byte] = call, self._flaws(call, tool.name)
        takes_one_object = CHECKED[self.tools.language].takes_one_object
        for call, flaws in calls.values():
            tool = self.tool_called(call) if flaws else None
            if tool is None:
                continue
            end = call.end_byte
            findings = [each for each in findings if each.kind or not call.start_byte <= each.offset < end]
            known = {each.offset for each in findings}
            for flaw in flaws:
                around = flaw.node.parent if flaw.expected else None
                offset = (around if is_a(around, "pair", "keyword_argument") else flaw.node).start_byte
                if offset not in known:
                    written = self.input_of(call) if flaw.expected and takes_one_object else None
                    is_all = written is not None and flaw.node == written.node
                    hint = flaw.hint or (f"Write `{self.tools.call_of(tool.name)}`." if is_all else None)
                    finding = Finding(code="input", message=flaw.message, offset=offset)
                    is_expected = flaw.of_value and self.is_caught(call)
                    rejected = finding.rejected("argument", hint=hint, declared=tool.signature)
                    findings.append(finding if is_expected else rejected)
        return findings

    def _flaws(self, call: Node, name: ToolName) -> list[Flaw]:
        tool, written = self.tools.tools.get(name), self.input_of(call)
        schema = None if tool is None else tool.input_schema
        if tool is None or schema is None or written is None:
            return []
        return self._inputs.flaws(schema, written, tool.input)

    def accepts_text(self, call: Node, name: ToolName, part: Node) -> bool:
        """True if a tool accepts a numeric string for this part of a call's input."""
        tool, written = self.tools.tools.get(name), self.input_of(call)
        if tool is None or written is None or tool.input_schema is None:
            return False
        return self._inputs.accepts_text(tool.input_schema, written, tool.input, part)

    def finding_on(self, condition: Condition, finding: Finding) -> Finding:
        """Returns the finding. It rejects the program if the condition is the only exit of a loop with effects."""
        self._conditions += 1
        if self._conditions > _MAX_FLAWED or not is_only_exit(condition, self._has_effect):
            return finding
        return finding.rejected("member", hint="The loop would repeat the call on every iteration.")

    def _has_effect(self, call: Node) -> bool:
        tool = self.tool_called(call)
        return tool is not None and tool.name in self.tools.tools and not self.tools.tools[tool.name].read_only

    def put(self, text: CheckedText) -> None:
        """Sets the text that the server reads, and drops its answers about the previous text."""
        self.text = text
        self._definitions: dict[int, list[Location]] = {}
        self._types: dict[int, list[Location]] = {}

    def definitions(self, node: Node | None) -> list[Location]:
        """Returns the locations where a name is defined."""
        return self._answer(node, self._definitions, Document.definitions)

    def types(self, node: Node | None) -> list[Location]:
        """Returns the locations where a name's types are defined."""
        return self._answer(node, self._types, Document.types)

    def declared_definitions(self, node: Node | None) -> list[Location]:
        """Returns the definitions of a name that are in the declarations."""
        return [each for each in self.definitions(node) if each.declared]

    def declared_types(self, node: Node | None) -> list[Location]:
        """Returns where the declarations define the types of a name."""
        return [each for each in self.types(node) if each.declared]

    def tool_named(self, name: Node | None) -> DeclaredTool | None:
        declared = self.declared_definitions(name)
        return self.tools.declared_at(declared[0]) if declared else None

    def node_at(self, location: Location) -> Node | None:
        return self.node_between(*self.text.offsets(location.span))

    def node_between(self, start: int, end: int) -> Node | None:
        """Returns the smallest node that covers a range of the program."""
        return self.root.named_descendant_for_byte_range(start, max(start, end - 1))

    def _answer(
        self,
        node: Node | None,
        known: dict[int, list[Location]],
        ask: Callable[[Document, int, int], list[Location]],
    ) -> list[Location]:
        """Returns the server's answer about a name. Asks only once per name."""
        if node is None or self._document is None:
            return []
        locations = known.get(node.start_byte)
        if locations is None and self._questions < _MAX_QUESTIONS:
            self._questions += 1
            place = self.text.place(node.start_byte)
            locations = known[node.start_byte] = [] if place is None else ask(self._document, *place)
        return locations or []
