"""Descriptions of tools for a model's prompt, within a token budget: as much detail per tool as fits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import count, groupby, islice
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

from corral.arguments import checked
from corral.errors import ConfigError
from corral.model.printing.abbreviations import abbreviate
from corral.model.printing.printers import Degree, DegreePrinter, comment_lines
from corral.model.printing.signatures import in_order
from corral.model.shapes.descriptions import text_lines
from corral.model.shapes.shape import Doc
from corral.rendering.lists import first_few
from corral.tools import Tool, ToolRegistry
from corral.tools.words import words
from corral.types import Language, ToolName

_MOST_MISSES = 4
"""Number of tools that can fail to fit before the remaining ones are skipped."""
_MOST_TRIES = 8
"""Maximum number of such attempts. Each prints a whole text and counts its tokens."""
_LEAST_SHARE = 64
"""Fraction of the budget below which filling stops."""
CatalogLevel: TypeAlias = Literal["full", "signatures", "names", "namespaces"]
"""Least detail shown of any tool: its declaration; its signature; its name; only a count by namespace."""


class _Facts(NamedTuple):
    """Properties of a degree of detail."""

    usual_cost: int
    """Approximate number of tokens that this degree adds to the one before it."""
    level: CatalogLevel
    manner: str
    """Coverage of a catalog that shows some tool at this degree and not better."""


_FACTS: Mapping[Degree, _Facts] = {
    Degree.COUNTED: _Facts(1, "namespaces", "not all of them named"),
    Degree.NAMED: _Facts(6, "names", "some by name only"),
    Degree.SHORT: _Facts(40, "signatures", "some shortened"),
    Degree.SUMMARIZED: _Facts(20, "signatures", "some shortened"),
    Degree.DETAILED: _Facts(100, "signatures", "some shortened"),
    Degree.FULL: _Facts(100, "full", "in full"),
}
_MOST_GUESSES = 5
"""Number of interpolated guesses, after which the search is binary, however much the tools differ in size."""

Degrees = dict[ToolName, Degree]


def fill_budget(
    names: Sequence[ToolName], likely: Sequence[ToolName], cost: Callable[[Mapping[ToolName, Degree]], int], budget: int
) -> Degrees:
    """Returns the highest degrees of detail that fit the budget.

    Likely tools are raised to full detail first, one by one. The others are raised together, one degree at a time, in
    the order of `names`; a few that do not fit are skipped. If two budgets give different degrees, the first tool that
    differs has the higher degree with the larger budget.

    Args:
            names: all tools, best first.
            likely: the tools that are likely to be needed.
            cost: returns the number of tokens that the tools take at the given degrees.
            budget: maximum number of tokens.
    """
    filling = _Filling(dict.fromkeys(names, Degree.COUNTED), cost, budget)
    for name in likely:
        for degree in reversed(Degree):
            if filling.raise_to([name], degree):
                break
    for degree in list(Degree)[1:]:
        waiting = [name for name in names if filling.degrees[name] == degree - 1]
        if filling.raise_to(waiting, degree) < len(waiting):
            break
    return filling.degrees


class _Filling:
    def __init__(self, degrees: Degrees, cost: Callable[[Mapping[ToolName, Degree]], int], budget: int) -> None:
        self.degrees = degrees
        self._cost = cost
        self._budget = budget
        self._spent = cost(degrees)

    def raise_to(self, waiting: Sequence[ToolName], degree: Degree) -> int:
        """Raises as many of the first tools as fit, then some after a tool that does not fit. Returns their number."""
        reached = self._raise_first(waiting, degree)
        return reached + (self._raise_others(waiting[reached + 1 :], degree) if degree > Degree.NAMED else 0)

    def _raise_others(self, waiting: Sequence[ToolName], degree: Degree) -> int:
        """Tries runs of tools that do not depend on the budget, so that a larger budget never shows less."""
        total, misses, step, grows = 0, 0, 1, True
        for _ in range(_MOST_TRIES):
            if not waiting or misses == _MOST_MISSES or self._budget - self._spent < self._budget // _LEAST_SHARE:
                break
            tried = self.degrees | dict.fromkeys(waiting[:step], degree)
            needed = self._cost(tried)
            if needed <= self._budget:
                self.degrees, self._spent = tried, needed
                total += len(waiting[:step])
                waiting = waiting[step:]
                step = step * 2 if grows else max(step // 2, 1)
            elif step > 1:
                step, grows = step // 2, False
            else:
                misses, waiting, grows = misses + 1, waiting[1:], True
        return total

    def _raise_first(self, waiting: Sequence[ToolName], degree: Degree) -> int:
        """Raises as many of the first tools as fit, by an interpolation search, because tools cost about the same."""
        low, spent = 0, self._spent
        high, over = len(waiting) + 1, 0
        probe = min(len(waiting), 1 + (self._budget - self._spent) // _FACTS[degree].usual_cost)
        for step in count(1):
            if low == high - 1:
                break
            needed = self._cost(self.degrees | dict.fromkeys(waiting[:probe], degree))
            if needed <= self._budget:
                low, spent = probe, needed
            else:
                high, over = probe, needed
            probe = (low + high) // 2
            if step < _MOST_GUESSES:
                each = (over - spent) / (high - low) if over else (spent - self._spent) / low
                probe = low + int((self._budget - spent) / max(each, 0.1))
            probe = min(max(probe, low + 1), high - 1)
        self.degrees |= dict.fromkeys(waiting[:low], degree)
        self._spent = spent
        return low


_TOKEN = re.compile(
    r" ?[A-Z]?[a-z]{1,12}"  # a word, or part of a camel-case word, with the space before it
    r"| ?[A-Z]{1,4}"
    r"|[0-9]{1,3}"
    r"| ?[!-/:-@\[-^`{-~]{1,4}\n?"  # adjacent punctuation, and the line end after it
    r"|_|\s+"
    r"|[^\x00-\x7f]{1,2}"
    r"|[\x00-\x08\x0e-\x1b\x7f]"
)
"""Matches about one token each. The counts lie between those of OpenAI's o200k_base and of the tokenizer that Anthropic
published for Claude 2, on declarations in both languages, JSON Schema and English (docs/catalog.md)."""


def estimated_tokens(text: str) -> int:
    """Estimates the number of tokens in a text, in time linear in its length."""
    return len(_TOKEN.findall(text))


_LEAST_BUDGET = 500
"""Minimum budget in tokens: enough for the search instructions and some names."""
_NEWS_SHARE = 8
"""Fraction of the budget that news can take even after all of the budget is spent."""
_MOST_UNGROUPED = 40
"""Maximum number of names that are listed one by one in a namespace. More are listed by group."""
_LEAST_GROUP = 3
_MAX_REASON, _MOST_REASONS = 200, 10
"""Maximum characters of the reason why a namespace has no tools, and maximum number of such reasons."""
_MOST_GROUPS = 40
"""Maximum number of groups that are mentioned without naming any of their tools."""

_ToolsByName: TypeAlias = Mapping[ToolName, Tool]


@checked
class Catalog:
    """Describes the tools of a registry for a model's prompt, and later the changes to them.

    `text` never changes, so a prompt that begins with it can be cached; append `news()` to the conversation. If the
    tools do not all fit in full, each is shown in less detail: names before signatures, first lines of descriptions
    before the rest, inputs before results. The text then explains how to search for more.

    Args:
        tools: may change at any time.
        budget_tokens: for the text and its news together. Once it is spent, each piece of news can still take an
            eighth.
        count_tokens: counts the tokens of a text; by default, they are estimated.
        first: names of tools and namespaces that are likely to be needed. They are shown in full before any others, in
            this order, as far as they fit.
        learnt: by tool, observed results of tools that declare no output; see `LearntResults`.
        complete: True if programs have no other tools; otherwise the text always explains how to search for more.

    Raises:
        ConfigError: the budget is less than 500 tokens.
    """

    def __init__(
        self,
        tools: ToolRegistry,
        language: Language = "typescript",
        *,
        budget_tokens: int = 4_000,
        count_tokens: Callable[[str], int] | None = None,
        first: Collection[str] = (),
        complete: bool = True,
        learnt: Mapping[ToolName, str] = MappingProxyType({}),
    ) -> None:
        if budget_tokens < _LEAST_BUDGET:
            raise ConfigError(f"budget_tokens={budget_tokens} is too small; set at least {_LEAST_BUDGET}")
        self._tools = tools
        self._language: Language = language
        self._budget = budget_tokens
        self._count = count_tokens or estimated_tokens
        self._first = tuple(first)
        self._learnt = learnt
        self.complete = complete
        self._shown: _ToolsByName = tools.snapshot()
        self.level: CatalogLevel
        """Least detail shown of any tool, in the text or in news."""
        self.level, self.text = self._show(self._shown, budget_tokens, "")
        self._spent = self._count(self.text)

    @property
    def has_streams(self) -> bool:
        """True if any tool streams."""
        return any(tool.stream for tool in self._shown.values())

    @property
    def has_untyped(self) -> bool:
        """True if any tool declares no output."""
        return any(tool.has_schemas and tool.output_schema is None for tool in self._shown.values())

    def again(self, tools: ToolRegistry) -> Catalog:
        """Returns a catalog with the same text and no news, for another conversation about the same tools."""
        other = copy(self)
        vars(other).update(_tools=tools)
        return other

    def news(self) -> str:
        """Returns the text to append for tools added, changed or removed since the text or the last news; empty if
        none.

        The changes then count as shown.
        """
        before, now = self._shown, self._tools.snapshot()
        self._shown = now
        new = {name: tool for name, tool in now.items() if name not in before or _differ(before[name], tool)}
        gone = [str(name) for name in before if name not in now]
        if not new and not gone:
            return ""
        room = max(self._budget - self._spent, self._budget // _NEWS_SHARE)
        text = self._list("Removed: ", gone, room // 2) if gone else ""
        if new:
            level, shown = self._show(new, room - self._count(text), "New or changed: ")
            self.level = min(self.level, level, key=[each.level for each in _FACTS.values()].index)
            text = shown + text
        self._spent += self._count(text)
        return text

    def _show(self, tools: _ToolsByName, budget: int, heading: str) -> tuple[CatalogLevel, str]:
        """Describes the tools within the budget. Also returns the least detail shown of any of them."""
        tools = {name: self._with_learnt(name, tool) for name, tool in tools.items()} if self._learnt else tools
        views = DegreePrinter(tools, self._language)
        names = sorted(tools, key=_by_turns(tools))
        whole = self._whole(views, {name: tools[name] for name in names}, budget, heading)
        if whole is not None:
            return "full", whole

        def text(degrees: Mapping[ToolName, Degree]) -> str:
            return self._partial(views, degrees, budget, heading)

        def cost(degrees: Mapping[ToolName, Degree]) -> int:
            # A tool whose weight exceeds the whole budget cannot fit, so it is not read.
            heaviest = max((views.weight(*each) for each in degrees.items()), default=0)
            return heaviest if heaviest > budget else self._count(text(degrees))

        degrees = fill_budget(names, self._likely(tools), cost, budget)
        return _FACTS[min(degrees.values())].level, text(degrees)

    def _with_learnt(self, name: ToolName, tool: Tool) -> Tool:
        remark = self._learnt.get(name, "")
        return replace(tool, description=f"{tool.description}\n\n{remark[0].upper()}{remark[1:]}") if remark else tool

    def _likely(self, tools: _ToolsByName) -> list[ToolName]:
        """Returns the tools that the host named, individually or by namespace, in the host's order."""
        return [name for first in self._first for name in tools if first in (str(name), name.namespace)]

    def _whole(self, views: DegreePrinter, tools: _ToolsByName, budget: int, heading: str) -> str | None:
        """Returns all declarations, or None if they do not fit. Tries names first, then descriptions, then the
        declarations of more and more tools, because reading and printing very many in full would take long."""
        if self._count("\n".join(f"{name.name}(): Promise" for name in tools)) > budget:
            return None
        legend = abbreviate({name: Doc(tool.description) for name, tool in tools.items()})
        lines = [f"{name.name}(): Promise {' '.join(text_lines(doc.text))}" for name, doc in legend.docs.items()]
        if self._count("\n".join((*legend.lines, *lines))) > budget:
            return None
        sample = 1
        while sample < len(tools):
            if any(views.weight(name, Degree.FULL) > budget for name in islice(tools, sample)):
                return None
            if self._count(views.declare(dict.fromkeys(islice(tools, sample), Degree.FULL))) > budget:
                return None
            sample *= 2
        if any(views.weight(name, Degree.FULL) > budget for name in tools):
            return None
        remark = "The list is complete." if self.complete else f"There may be others.{_advice(tools)}"
        text = self._remark(f"{heading}{_plural(len(tools), 'tool')}. {remark}")
        text += self._missing(heading) + views.declare_whole()
        return text if self._count(text) <= budget else None

    def _partial(self, views: DegreePrinter, degrees: Mapping[ToolName, Degree], budget: int, heading: str) -> str:
        """Describes the tools at these degrees. The less room there is, the more namespaces are counted instead of
        listed."""
        manner = _FACTS[min(degrees.values())].manner
        text = self._remark(f"{heading}{_plural(len(degrees), 'tool')}, {manner}.{_advice(degrees)}") + self._missing(
            heading
        )
        shown = {name: degree for name, degree in degrees.items() if degree > Degree.NAMED}
        if shown:
            text += views.declare(shown)
        named = [name for name, degree in degrees.items() if degree is Degree.NAMED]
        by_name = [name for name, degree in degrees.items() if degree <= Degree.NAMED]
        counted = Counter(name.namespace for name in by_name)
        for namespace, group in groupby(in_order(named), key=lambda name: name.namespace):
            every = [name.name for name in by_name if name.namespace == namespace]
            text += self._remark("\n".join(_names(namespace, [name.name for name in group], every)))
            del counted[namespace]
        if counted:
            spaces = [
                f"{count} without one" if space is None else f"{space} ({count})"
                for space, count in sorted(counted.items(), key=lambda item: item[0] or "")
            ]
            text += self._list("Namespaces: ", spaces, budget // 2 if named or shown else budget - self._count(text))
        return text

    def _missing(self, heading: str) -> str:
        """Explains why namespaces have no tools, such as a server that is not connected. Empty in news."""
        if heading:
            return ""
        problems = self._tools.problems
        missing = sorted(problems.keys() - frozenset(self._tools.namespaces()))
        reasons = [f"{space}: {' '.join(problems[space].split())[:_MAX_REASON]}" for space in missing]
        return self._remark("\n".join(reasons[:_MOST_REASONS]))

    def _list(self, heading: str, items: Sequence[str], budget: int) -> str:
        """Returns as many of the first items as fit the budget, on one line."""
        kept = len(items)
        while True:
            text = self._remark(heading + ", ".join(first_few(items, kept)))
            if not kept or self._count(text) <= budget:
                return text
            kept //= 2

    def _remark(self, text: str) -> str:
        return comment_lines(text, self._language)


def _advice(tools: Iterable[ToolName]) -> str:
    """Explains how to search for more tools, with the first tool as an example."""
    example = next(iter(tools), "name")
    return (
        ' Search for more: `await tools.search("words")` returns { items: { name, signature, description }[] },'
        f' `await tools.describe("{example}")` returns {{ declaration }}, for a list of names a list.'
    )


def _by_turns(tools: Iterable[ToolName]) -> Callable[[ToolName], tuple[object, ...]]:
    """Returns a sort key. Tools without a namespace, which are the host's own, come first; then the first tool of each
    namespace, then the second ones, and so on. Within a namespace, names of few words come first, and large groups
    before small ones, because longer names tend to be more specialised."""
    sizes = Counter((name.namespace, _group(name.name)) for name in tools)

    def plainness(name: ToolName) -> tuple[object, ...]:
        return name.name.count("_"), len(words(name.name)), -sizes[name.namespace, _group(name.name)], name.name

    turns: dict[ToolName, int] = {}
    for _, members in groupby(in_order(tools), key=lambda name: name.namespace):
        turns |= {name: turn for turn, name in enumerate(sorted(members, key=plainness))}
    return lambda name: (name.namespace is not None, turns[name], str(name))


def _group(name: str) -> str:
    """Returns a name's first word with its underscore, such as `issues_` of `issues_list_for_repo`; empty if there is
    none."""
    beginning, underscore, end = name.partition("_")
    return beginning + underscore if beginning and end else ""


def _names(namespace: str | None, named: Sequence[str], every: Sequence[str]) -> Iterator[str]:
    """Yields lines with a namespace's names. Above `_MOST_UNGROUPED` names, shared prefixes are printed once."""
    sizes = Counter(map(_group, every))
    grouped = {group for group, size in sizes.items() if group and size >= _LEAST_GROUP}
    if len(every) <= _MOST_UNGROUPED or len(grouped) < 2:
        grouped = set[str]()
    rest = [name for name in named if _group(name) not in grouped]
    unnamed = sum(_group(name) not in grouped for name in every) - len(rest)
    items = [*rest, *([f"and {unnamed} more"] if unnamed else [])]
    place = "" if namespace is None else f"{namespace}: "
    if not grouped:
        yield f"{place}{', '.join(items)}"
        return
    example = min((name for name in named if _group(name) in grouped), key=len, default=f"{min(grouped)}...")
    yield f"{place}names begin with their group, as tools.{'' if namespace is None else f'{namespace}.'}{example}"
    for group in sorted(grouped & set(map(_group, named))):
        ends = [name.removeprefix(group) for name in named if _group(name) == group]
        yield f"{group} ({sizes[group]}): {', '.join([*ends, *(['...'] if len(ends) < sizes[group] else [])])}"
    others = [f"{group} ({sizes[group]})" for group in sorted(grouped - set(map(_group, named)))]
    if others or items:
        yield f"others: {', '.join([*first_few(others, _MOST_GROUPS), *items])}"


def _differ(before: Tool, after: Tool) -> bool:
    """True if the model has to be shown the newer version of a tool."""
    return before is not after and _content(before) != _content(after)


def _content(tool: Tool) -> tuple[object, ...]:
    shown = tool.description, tool.input_schema, tool.output_schema, tool.needs_approval, tool.stream
    return *shown, tool.rate_limit, tool.policy


def _plural(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
