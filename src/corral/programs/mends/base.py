"""Part of the repairs that both languages share."""

from __future__ import annotations

from abc import ABC, abstractmethod

from tree_sitter import Node

from corral.programs.edits import Edits
from corral.programs.mends.names import ToolNames
from corral.programs.syntax.parsing import arguments_of, text_of


class Mender(ABC):
    """Adds the edits of all certain repairs of one program, and a message for each to `mends`."""

    def __init__(self, tools: ToolNames, edits: Edits) -> None:
        self.mends: list[str] = []
        self._tools = tools
        self._edits = edits

    @abstractmethod
    def _await(self, call: Node, shown: str) -> None:
        """Awaits the call of a tool, whose name is shown to the model, if its value is used."""

    def _tell(self, message: str) -> None:
        self.mends.append(message)

    def _interpret(self, node: Node, written: str, new: str) -> None:
        self._edits.replace(node.start_byte, node.end_byte, new.encode())
        self._tell(f"`{written}` was interpreted as `{new}`.")

    def _bridge(self, call: Node, callee: Node) -> None:
        """Repairs `call_tool("name", {...})`."""
        passed = arguments_of(call)
        if not 1 <= len(passed) <= 2 or passed[0].type != "string" or text_of(passed[0])[:1] not in "\"'":
            return
        path = self._tools.resolve(text_of(passed[0])[1:-1].removeprefix("tools."))
        end = passed[1].start_byte if len(passed) == 2 else passed[0].end_byte
        if path is None or b"\n" in self._edits.text[callee.start_byte : end]:
            return
        self._edits.replace(callee.start_byte, end, f"tools.{path}(".encode())
        self._tell(f"`{text_of(callee)}({text_of(passed[0])}, …)` was interpreted as `tools.{path}(…)`.")
        self._await(call, f"tools.{path}")
