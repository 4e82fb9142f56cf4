"""Common part of the checks of all languages: a program, the tools it must fit, and a server to ask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from tree_sitter import Node

from corral.checking.conditions import Condition, is_only_exit
from corral.checking.declared_tools import DeclaredTool, ToolSet
from corral.checking.findings import Finding
from corral.checking.inputs import Flaw, Inputs, Written
from corral.checking.languages import CHECKED
from corral.checking.servers.workspace import Document, Location, Remark
from corral.checking.source_map import CheckedText
from corral.concurrency.cached_property import cached_property
from corral.types import Position, ToolName

_MAX_QUESTIONS = 300
"""Most questions to a server about one program, besides its diagnostics. Unasked values count as the program's own."""
_MAX_FLAWED = 50
"""Most calls whose inputs are told of."""


class DeclarationsUnread(Exception):
    """The server cannot read the declarations of the tools, so its silence about a program means nothing."""


class Check(ABC):
    """One program. `findings` may be called once; before it, `text` is what the server would read first."""

    def __init__(self, root: Node, tools: ToolSet) -> None:
        self.root = root
        self.tools = tools
        self._inputs = Inputs(self.read)
        self._calls: list[tuple[Node, DeclaredTool]] = []
        """Calls of tools in whose arguments the server has found something."""
        self._document: Document | None = None
        self._questions = 0
        self._conditions = 0

    @abstractmethod
    def is_settled(self, remarks: Sequence[Remark]) -> bool:
        """True if these remarks on `text` leave nothing wrong with the program, and nothing more to ask."""

    @abstractmethod
    def locate(self, offset: int) -> Position:
        """The position in the model's source of a byte of the program."""

    @abstractmethod
    def judge(self, document: Document) -> list[Finding]:
        """The findings about the program.

        Raises:
            ServerLost: the server did not get to its end.
            DeclarationsUnread: it looked at the program alone.
        """

    @abstractmethod
    def read(self, value: Node) -> Written:
        """An expression, as far as it is written out."""

    @abstractmethod
    def calls_by_name(self) -> Iterator[tuple[Node, str]]:
        """Calls by a tool's whole name, if nothing else is called `tools`, and that name."""

    @abstractmethod
    def input_of(self, call: Node) -> Written | None:
        """The input that a call gives to a tool."""

    @abstractmethod
    def is_caught(self, call: Node) -> bool:
        """True if the program handles the failure of a call."""

    @abstractmethod
    def tool_called(self, call: Node) -> DeclaredTool | None:
        """The tool that a call calls."""

    def findings(self, document: Document) -> list[Finding]:
        """The same, with the document at hand for questions."""
        self._document = document
        return self.judge(document)

    @cached_property
    def flawed(self) -> dict[int, tuple[Node, list[Flaw]]]:
        """Calls by a tool's whole name in whose inputs something is wrong by the schemas, by their places."""
        pairs = ((call, self._flaws(call, ToolName.parse(name))) for call, name in self.calls_by_name())
        return {
            call.start_byte: (call, flaws) for call, flaws in islice(filter(lambda each: each[1], pairs), _MAX_FLAWED)
        }

    def with_flaws(self, findings: list[Finding]) -> list[Finding]:
        """The findings, and what is wrong with inputs by the schemas, in the place of warnings on the same inputs."""
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
                around = flaw.node.parent
                is_named = flaw.expected and around is not None and around.type in ("pair", "keyword_argument")
                offset = around.start_byte if is_named and around is not None else flaw.node.start_byte
                if offset not in known:
                    is_all = flaw.expected and takes_one_object and flaw.node == self._whole(call)
                    hint = flaw.hint or (f"Write `{self.tools.call_of(tool.name)}`." if is_all else None)
                    finding = Finding(code="input", message=flaw.message, offset=offset)
                    is_expected = flaw.of_value and self.is_caught(call)
                    rejected = finding.rejected("argument", hint=hint, declared=tool.signature)
                    findings.append(finding if is_expected else rejected)
        return findings

    def _whole(self, call: Node) -> Node | None:
        written = self.input_of(call)
        return None if written is None else written.node

    def _flaws(self, call: Node, name: ToolName) -> list[Flaw]:
        tool, written = self.tools.tools.get(name), self.input_of(call)
        schema = None if tool is None else tool.input_schema
        if tool is None or schema is None or written is None:
            return []
        return self._inputs.flaws(schema, written, tool.input)

    def takes_spelt(self, call: Node, name: ToolName, part: Node) -> bool:
        """True if a tool takes a text that spells a number for a part of the input of a call."""
        tool, written = self.tools.tools.get(name), self.input_of(call)
        if tool is None or written is None or tool.input_schema is None:
            return False
        return self._inputs.takes_spelt(tool.input_schema, written, tool.input, part)

    def finding_on(self, condition: Condition, finding: Finding) -> Finding:
        """The finding on a condition, which rejects the program if a loop with effects ends by nothing else."""
        self._conditions += 1
        if self._conditions > _MAX_FLAWED or not is_only_exit(condition, self._has_effect):
            return finding
        return finding.rejected("member", hint="The loop would call again and again.")

    def _has_effect(self, call: Node) -> bool:
        tool = self.tool_called(call)
        return tool is not None and tool.name in self.tools.tools and not self.tools.tools[tool.name].read_only

    def put(self, text: CheckedText) -> None:
        """Makes this what the server reads; what it has said of places in another text is forgotten."""
        self.text = text
        self._definitions: dict[int, list[Location]] = {}
        self._types: dict[int, list[Location]] = {}

    def definitions(self, node: Node | None) -> list[Location]:
        """Locations of the definition of a name."""
        return self._answer(node, self._definitions, Document.definitions)

    def types(self, node: Node | None) -> list[Location]:
        """Locations of the definitions of a name's types."""
        return self._answer(node, self._types, Document.types)

    def declared_definitions(self, node: Node | None) -> list[Location]:
        """Locations of the definition of a name in the declarations."""
        return [each for each in self.definitions(node) if each.declared]

    def declared_types(self, node: Node | None) -> list[Location]:
        """Locations of the definitions of a name's types in the declarations."""
        return [each for each in self.types(node) if each.declared]

    def tool_named(self, name: Node | None) -> DeclaredTool | None:
        """The tool that a name stands for."""
        declared = self.declared_definitions(name)
        return self.tools.declared_at(declared[0]) if declared else None

    def node_at(self, location: Location) -> Node | None:
        """The node of the program at a location in it."""
        return self.node_between(*self.text.offsets(location.span))

    def node_between(self, start: int, end: int) -> Node | None:
        """The smallest node that spans a stretch of the program."""
        return self.root.named_descendant_for_byte_range(start, max(start, end - 1))

    def _answer(
        self,
        node: Node | None,
        known: dict[int, list[Location]],
        ask: Callable[[Document, int, int], list[Location]],
    ) -> list[Location]:
        """The server's answer about a name, which it is asked once."""
        if node is None or self._document is None:
            return []
        locations = known.get(node.start_byte)
        if locations is None and self._questions < _MAX_QUESTIONS:
            self._questions += 1
            place = self.text.place(node.start_byte)
            locations = known[node.start_byte] = [] if place is None else ask(self._document, *place)
        return locations or []
