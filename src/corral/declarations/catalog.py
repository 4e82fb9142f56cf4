"""What a model is shown of tools, within a budget of tokens: as much of each tool as there is room for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, islice
from typing import Literal, TypeAlias

from corral.declarations.discovery import discovery_tools
from corral.declarations.printers import comment_lines, declare, declare_short
from corral.declarations.python import declare_python
from corral.declarations.signatures import Signature
from corral.declarations.typescript import declare_typescript
from corral.errors import ConfigError
from corral.tools import Tool, ToolRegistry
from corral.types import Language, ToolName

__all__ = ["Catalog", "CatalogLevel"]

CatalogLevel: TypeAlias = Literal["full", "signatures", "names", "namespaces"]
"""How much is shown: declarations; one line for each tool; their names; how many there are in each namespace."""

_LEVELS: tuple[CatalogLevel, ...] = ("full", "signatures", "names", "namespaces")
_LEAST_BUDGET = 500
"""Tokens: what `tools.search` and `tools.describe` and how to use them take, and some more."""
_NEWS_SHARE = 8
"""News may take this part of the budget when all of it is spent."""

Tools: TypeAlias = Mapping[ToolName, Tool]


class Catalog:
    """The tools of a registry as a text for a model's prompt, and later what has changed since.

    `text` never changes, so that a prompt that begins with it can be cached; `news()` is to be appended. All tools are
    shown in the same level, the first that is within the budget. Below `full` the text says how to look for more.

    Args:
        tools: may change at any time.
        budget_tokens: for the text and its news together; when it is spent, each of the news may still take an eighth.
        count_tokens: how many tokens a text has; a quarter of its bytes, if it is not given.

    Raises:
        ConfigError: the budget is less than 500.
    """

    def __init__(
        self,
        tools: ToolRegistry,
        language: Language = "typescript",
        *,
        budget_tokens: int = 4_000,
        count_tokens: Callable[[str], int] | None = None,
    ) -> None:
        if budget_tokens < _LEAST_BUDGET:
            raise ConfigError(f"budget_tokens={budget_tokens} is too little to tell anything; at least {_LEAST_BUDGET}")
        self._tools = tools
        self._language: Language = language
        self._budget = budget_tokens
        self._count = count_tokens or _estimate
        self._advertised = False
        self._read: dict[ToolName, Signature] = {}
        self._shown: Tools = tools.snapshot()
        self.level: CatalogLevel
        """In which tools are shown; news may be in a lower one, and then all that follow are."""
        self.level, self.text = self._show(self._shown, _LEVELS, budget_tokens, "")
        self._advertised = self.level != "full"
        self._spent = self._count(self.text)

    def news(self) -> str:
        """What is to be appended for tools that came, changed or went since the text or the last news; maybe nothing.

        It counts as shown then.
        """
        before, now = self._shown, self._tools.snapshot()
        self._shown = now
        new = {name: tool for name, tool in now.items() if name not in before or _differ(before[name], tool)}
        gone = [str(name) for name in before if name not in now]
        if not new and not gone:
            return ""
        room = max(self._budget - self._spent, self._budget // _NEWS_SHARE)
        text = self._list("Gone: ", gone, room // 2) if gone else ""
        if new:
            levels = _LEVELS[_LEVELS.index(self.level) :]
            self.level, shown = self._show(new, levels, room - self._count(text), "New or changed: ")
            self._advertised |= self.level != "full"
            text = shown + text
        self._spent += self._count(text)
        return text

    # --- one level

    def _show(
        self, tools: Tools, levels: Sequence[CatalogLevel], budget: int, heading: str
    ) -> tuple[CatalogLevel, str]:
        """The first level in which the tools are within the budget, and their text. The last one is cut to fit."""
        self._read.clear()
        for level in levels[:-1]:
            if self._is_near(level, tools, budget, heading):
                text = self._text(level, tools, heading)
                if self._count(text) <= budget:
                    return level, text
        return levels[-1], self._namespaces(tools, budget, heading)

    def _is_near(self, level: CatalogLevel, tools: Tools, budget: int, heading: str) -> bool:
        """Whether the first tools are within the budget, tried with more and more of them: to print all of very many
        that are not would take long."""
        if level == "names":
            return self._count(" ".join(name.name for name in tools)) <= budget
        if self._count("\n".join(f"{name.name}(): Promise" for name in tools)) > budget:
            return False
        count = 1
        while count < len(tools):
            first = dict(islice(tools.items(), count))
            if self._count(self._text(level, first, heading)) > budget:
                return False
            count *= 2
        return True

    def _text(self, level: CatalogLevel, tools: Tools, heading: str) -> str:
        count = _counted(len(tools), "tool")
        match level:
            case "full":
                declared = declare_python(tools) if self._language == "python" else declare_typescript(tools)
                return self._remark(f"{heading}{count}. The list is complete.") + declared
            case "signatures":
                remark = self._remark(f"{heading}{count}, in short.{self._advice(tools)}")
                return remark + declare_short(tools, self._language, whole=self._discovery(), known=self._read)
            case _:
                remark = self._remark(f"{heading}{count}, by name.{self._advice(tools)}")
                return remark + self._declared_discovery() + self._remark("\n".join(_names(tools)))

    def _namespaces(self, tools: Tools, budget: int, heading: str) -> str:
        counts = [
            f"{namespace} ({len(list(group))})"
            for namespace, group in groupby(tools, key=lambda name: name.namespace)
            if namespace is not None
        ]
        remark = f"{heading}{_counted(len(tools), 'tool')}, too many to name.{self._advice(tools)}"
        text = self._remark(remark) + self._declared_discovery()
        return text + (self._list("Namespaces: ", counts, budget - self._count(text)) if counts else "")

    # --- parts of it

    def _advice(self, tools: Tools) -> str:
        """How to find out more, with the first of the tools as an example."""
        example = next(iter(tools))
        return f' Look for more: await tools.search("words"), await tools.describe("{example}").'

    def _discovery(self) -> Tools:
        """What is to be declared of `tools.search` and `tools.describe`: nothing if they were before."""
        return {} if self._advertised else discovery_tools(self._tools, self._language)

    def _declared_discovery(self) -> str:
        found = self._discovery()
        return declare(found, self._language) if found else ""

    def _list(self, heading: str, items: Sequence[str], budget: int) -> str:
        """The items on one line, as many of the first ones as are within the budget."""
        kept = len(items)
        while True:
            more = [f"and {len(items) - kept} more"] if kept < len(items) else []
            text = self._remark(heading + ", ".join([*items[:kept], *more]))
            if not kept or self._count(text) <= budget:
                return text
            kept //= 2

    def _remark(self, text: str) -> str:
        return comment_lines(text, self._language)


def _names(tools: Iterable[ToolName]) -> list[str]:
    """A line for each namespace; that of tools without one comes first."""
    return [
        f"{'' if namespace is None else f'{namespace}: '}{', '.join(name.name for name in group)}"
        for namespace, group in groupby(tools, key=lambda name: name.namespace)
    ]


def _differ(before: Tool, after: Tool) -> bool:
    """Whether a model is to be shown the later one of two tools of the same name."""
    return before is not after and _content(before) != _content(after)


def _content(tool: Tool) -> tuple[object, ...]:
    return tool.description, tool.input_schema, tool.output_schema, tool.needs_approval


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _estimate(text: str) -> int:
    return -(-len(text.encode("utf-8", "surrogatepass")) // 4)
