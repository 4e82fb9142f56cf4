"""Tools of one host, registered under their own names and called by guest names."""

from __future__ import annotations

import heapq
import math
import re
import threading
from bisect import bisect_left
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from typing_extensions import override

from corral.arguments import checked_as
from corral.concurrency.cached_property import cached_property
from corral.errors import ToolDefinitionError, ToolNotFound
from corral.rendering.lists import first_few
from corral.rendering.suggestions import NearNames
from corral.tools.json_schema.problems import quoted
from corral.tools.names import (
    RESERVED_ROOT_NAMES,
    distinct_identifiers,
    identifier,
    namespace_identifier,
    other_spelling,
)
from corral.tools.tool import Tool, as_tool
from corral.tools.words import SYNONYMS, UNIMPORTANT, stem, words
from corral.types import JsonSchema, ToolName

_MAX_QUERY_CHARACTERS = 400
_MAX_QUERY_WORDS = 24
_MAX_DESCRIPTION_CHARACTERS = 2_000
_MAX_PARAMETERS = 50
_MAX_PARAMETER_CHARACTERS = 200

_MENTION = re.compile(
    r"[\s`'\"]*+(?:await\s++)?+(?:(?:tools|codemode)\.)?+([\w$]++(?:[./][\w$-]++)*+)(?:\(.*+)?+[\s`'\";]*+", re.DOTALL
)
"""Path of a tool in programs."""

_SATURATION = 1.2
"""Parameter k1 of BM25."""
_NAME, _NAMESPACE, _SUMMARY, _DETAIL, _PARAMETERS, _PARAMETER_DETAILS = 16.0, 1.0, 16.0, 3.0, 1.0, 1.0
"""Total weights of the words in each field. The summary is the first sentence of the description."""
_SYNONYM, _BEGINNING = 0.4, 0.6
"""Weights of synonyms, and of words that begin with the query's word; the longer the word, the lower its weight."""
_LEAST_BEGINNING = 3
_MAX_BEGINNINGS = 10

_MAX_NEAR = 3
_MAX_MEMBERS = 6
"""Maximum number of members of a path that are joined in search of a name."""


class Entry:
    """Searchable words of a tool. Indexes can share it, so its weights are computed once."""

    def __init__(self, name: ToolName, tool: Tool) -> None:
        self.name = name
        self._tool = tool

    @cached_property
    def weights(self) -> Mapping[str, float]:
        """Stems of all words about the tool, with their weights."""
        return _weights_of(self.name, self._tool.description, self._tool.input_schema)


class _SearchIndex:
    """Index over names, descriptions and parameters, built when first needed. Results have a stable order."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = list(entries)
        self._paths = [str(entry.name) for entry in self._entries]

    def search(self, query: str, *, namespace: str | None, limit: int, offset: int) -> tuple[list[str], int]:
        """Returns paths of tools that match words of the query, best first: `limit` at most, from `offset` on. Also
        returns the total number of matches. A query without words matches all tools, in order."""
        limit, offset = max(limit, 0), max(offset, 0)
        query = query[:_MAX_QUERY_CHARACTERS]
        mentioned = _MENTION.fullmatch(query)
        query = query if mentioned is None else mentioned[1]
        asked = words(query)[:_MAX_QUERY_WORDS]
        tiers = self._rank_by_name(query, asked)
        scores = self._postings.scores(asked) if asked else dict.fromkeys(range(len(self._entries)), 0.0)
        scores = {**dict.fromkeys(tiers, 0.0), **scores}  # a name may consist only of words that are not indexed
        if namespace is not None:
            scores = {each: score for each, score in scores.items() if self._entries[each].name.namespace == namespace}
        best = heapq.nsmallest(offset + limit, scores, key=lambda each: (tiers.get(each, 4), -scores[each], each))
        return [self._paths[each] for each in best[offset:]], len(scores)

    def _rank_by_name(self, query: str, asked: list[str]) -> dict[int, int]:
        """Returns tools with this name and how well each matches, from 0 for an exact match to 3 if the namespace is
        missing and the spelling differs."""
        named = "".join(asked)
        spelled = self._by_spelling.get(named, ()) if named else ()
        names = self._by_name.get(named, ()) if named else ()
        exact = [each for each in names if self._entries[each].name.name == query]
        whole = [each for each in spelled if self._paths[each] == query]
        return dict.fromkeys(names, 3) | dict.fromkeys(spelled, 2) | dict.fromkeys(exact, 1) | dict.fromkeys(whole, 0)

    def near(self, path: str) -> list[str]:
        """Returns up to three paths that are similar to `path`, nearest first.

        If the last members of the path spell a tool's name, that tool is the only one: `github.issues_list_for_repo`
        for `github.rest.issues.listForRepo`. Otherwise the same name in a namespace comes before similar ones.
        """
        members = path[:_MAX_QUERY_CHARACTERS].split(".")[-_MAX_MEMBERS:]
        for start in range(len(members)):
            joined = "".join(words(" ".join(members[start:])))
            spelled = self._by_spelling.get(joined) or self._by_name.get(joined, ())
            if spelled and joined:
                inside = [each for each in spelled if self._entries[each].name.namespace == members[0]]
                return [self._paths[each] for each in inside or spelled][:_MAX_NEAR]
        same = self._by_last.get(members[-1], ())[:_MAX_NEAR]
        similar = self._near.of(path, _MAX_NEAR)
        return list(dict.fromkeys([*same, *similar]))[:_MAX_NEAR]

    @cached_property
    def _by_spelling(self) -> Mapping[str, list[int]]:
        return _group_by_spelling(self._paths)

    @cached_property
    def _by_name(self) -> Mapping[str, list[int]]:
        return _group_by_spelling(entry.name.name for entry in self._entries)

    @cached_property
    def _by_last(self) -> Mapping[str, list[str]]:
        paths: defaultdict[str, list[str]] = defaultdict(list)
        for path in self._paths:
            paths[path.rpartition(".")[2]].append(path)
        return paths

    @cached_property
    def _near(self) -> NearNames:
        return NearNames(self._paths)

    @cached_property
    def _postings(self) -> _Postings:
        return _Postings(entry.weights for entry in self._entries)


class _Postings:
    """Documents by the stems that they contain, with the weight of each stem."""

    def __init__(self, documents: Iterable[Mapping[str, float]]) -> None:
        postings: defaultdict[str, dict[int, float]] = defaultdict(dict)
        number = -1
        for number, weights in enumerate(documents):
            for word, weight in weights.items():
                postings[word][number] = weight / (weight + _SATURATION)
        self._scores: Mapping[str, dict[int, float]] = dict(postings)
        self._rarity = {word: math.log((number + 2) / (len(scores) + 0.5)) for word, scores in postings.items()}
        self._sorted = sorted(postings)

    def scores(self, terms: list[str]) -> dict[int, float]:
        """Returns scores of the documents that have any of the words. More matching words score more."""
        important = [word for word in terms if word not in UNIMPORTANT] or terms
        stems = list(dict.fromkeys(map(stem, important)))
        total: dict[int, float] = {}
        matched: dict[int, int] = {}
        for each in stems:
            for document, score in self._of(each).items():
                total[document] = total.get(document, 0.0) + score
                matched[document] = matched.get(document, 0) + 1
        return {document: score * matched[document] / len(stems) for document, score in total.items()}

    def _of(self, term: str) -> dict[int, float]:
        """Scores documents for one word of the query: for itself or for its best synonym, which counts as no rarer."""
        scores: dict[int, float] = {}
        for word, share in ((term, 1.0), *self._related(term)):
            factor = share * min(self._rarity.get(word, 0.0), self._rarity.get(term, math.inf))
            for document, score in self._scores.get(word, {}).items():
                if score * factor > scores.get(document, 0.0):
                    scores[document] = score * factor
        return scores

    def _related(self, term: str) -> Iterator[tuple[str, float]]:
        for word in SYNONYMS.get(term, ()):
            if word in self._scores:
                yield word, _SYNONYM
        if len(term) >= _LEAST_BEGINNING:
            start = bisect_left(self._sorted, term)
            for word in islice(self._sorted, start, start + _MAX_BEGINNINGS):
                if not word.startswith(term):
                    break
                yield word, _BEGINNING * len(term) / len(word)


def _weights_of(name: ToolName, description: str, input_schema: JsonSchema | None) -> Mapping[str, float]:
    description = description[:_MAX_DESCRIPTION_CHARACTERS].strip()
    summary, _, detail = description.partition("\n")
    if ". " in summary:
        summary, _, rest = summary.partition(". ")
        detail = f"{rest}\n{detail}"
    parameters = list(_parameters(input_schema))
    places = (
        (name.name, _NAME),
        (name.namespace or "", _NAMESPACE),
        (summary, _SUMMARY),
        (detail, _DETAIL),
        (" ".join(parameter for parameter, _ in parameters), _PARAMETERS),
        (" ".join(text[:_MAX_PARAMETER_CHARACTERS] for _, text in parameters), _PARAMETER_DETAILS),
    )
    weights: defaultdict[str, float] = defaultdict(float)
    for text, weight in places:
        stems = [stem(word) for word in words(text) if word not in UNIMPORTANT]
        for each in stems:
            weights[each] += weight / len(stems)
    return weights


def _parameters(schema: JsonSchema | None) -> Iterator[tuple[str, str]]:
    """Yields names and descriptions of the input's parameters."""
    properties: Any = (schema or {}).get("properties")
    if isinstance(properties, dict):
        for name, member in islice(cast("dict[str, Any]", properties).items(), _MAX_PARAMETERS):
            description: Any = cast("dict[str, Any]", member).get("description") if isinstance(member, dict) else None
            yield name, description if isinstance(description, str) else ""


def _group_by_spelling(names: Iterable[str]) -> dict[str, list[int]]:
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for number, name in enumerate(names):
        numbers["".join(words(name))].append(number)
    return numbers


T = TypeVar("T")

_LISTED_NAMES = 20
"""Maximum number of names in an error if none is similar."""
_MOST_VIEWS = 256
"""Maximum number of views of one registry, for different scopes, that are kept."""
_MOST_PARTS = 32
"""Maximum number of tool sets whose computed values are kept."""


_SEARCHES = {
    "search_tools": 'search("words")',
    "describe_tools": 'describe("name")',
}
"""Members of `tools` for the model's own tools, which have other names outside programs."""


class ToolsFound(NamedTuple):
    """Page of search results."""

    tools: list[tuple[ToolName, Tool]]
    """Tools on this page, best first."""
    total: int
    """Number of tools on all pages."""


class Problem(NamedTuple):
    """Reason why tools of a namespace can be missing."""

    text: str
    scopes: frozenset[str] = frozenset()
    """Scopes that each of these tools requires."""


Shown: TypeAlias = Callable[[str, Tool], Tool | None]
"""Function that returns a tool, with this guest name, as a caller sees it; None hides it. Equal functions have the same
results."""


class ToolRegistry:
    """Registry of tools. Tools can be added and removed at any time, from any thread; look-ups see the latest state.

    Programs call a tool by its guest name, made from its own name by the rules in `corral.tools.names`.
    Iteration yields guest names: tools without a namespace first, else alphabetically.
    """

    def __init__(self, *tools: Tool | Callable[..., Any]) -> None:
        self._lock = threading.RLock()
        self._state = _State({}, {})
        self._views: OrderedDict[tuple[frozenset[str], Shown | None], _View] = OrderedDict()
        self.outside: frozenset[str] = frozenset()
        """Tools that only the model, not programs, can call. For messages."""
        self.register(*tools)

    def visible_to(self, scopes: frozenset[str], shown: Shown | None = None) -> ToolRegistry:
        """Returns a view with only the tools that a caller with these scopes may call, as `shown` returns them.

        The view behaves as if other tools did not exist. It has the names of this registry, and changes to one are
        visible in the other.
        """
        with self._lock:
            view = self._views.pop((scopes, shown), None) or _View(
                scopes, shown, now=self._now, change=self._change, hidden=self.hidden, hides=self.hides
            )
            self._views[scopes, shown] = view
            if len(self._views) > _MOST_VIEWS:
                self._views.popitem(last=False)
        return view

    def hides(self) -> bool:
        """True if this is a view that omits any tool."""
        return False

    def hidden(self, name: str) -> Tool | None:  # noqa: ARG002
        """Returns a tool, by its guest name, that the view omits. For the host only."""
        return None

    # --- changes

    @checked_as(ToolDefinitionError)
    def register(self, *tools: Tool | Callable[..., Any], namespace: str | None = None) -> None:
        """Adds tools, all or none; `namespace` is then the namespace of each of them.

        Raises:
            ToolDefinitionError: a name is taken, reserved, or the same as that of a namespace.
        """
        added = [as_tool(each) for each in tools]
        if namespace is not None:
            added = [replace(each, namespace=namespace) for each in added]
        self._change((), added)

    def exchange(
        self,
        gone: Iterable[Tool],
        added: Iterable[Tool],
        *,
        namespace: str | None = None,
        problem: str | None = None,
        scopes: Iterable[str] = (),
    ) -> None:
        """Removes tools and adds others in one step, all or none. Missing ones in `gone` are ignored.

        `problem` is the reason that programs see for a missing tool in `namespace`; None clears it. A view shows it
        only to callers who have all of `scopes`.

        Raises:
            ToolDefinitionError: see `register`.
        """
        reason = None if problem is None else Problem(problem, frozenset(scopes))
        problems = {} if namespace is None else {namespace_identifier(namespace): reason}
        self._change(tuple(gone), tuple(added), problems)

    def _change(
        self, gone: Iterable[Tool], added: Iterable[Tool], problems: Mapping[str, Problem | None] = MappingProxyType({})
    ) -> None:
        with self._lock:
            spaces = {name: dict(members) for name, members in self._state.spaces.items()}
            for each in gone:
                members = spaces.get(each.namespace, {})
                if members.get(each.name) is each:
                    del members[each.name]
            spaces = {name: members for name, members in spaces.items() if members}
            for each in added:
                _require_free(each, spaces)
                spaces.setdefault(each.namespace, {})[each.name] = each
            stated = {**self._state.problems, **problems}
            self._state = _State(spaces, {name: why for name, why in stated.items() if why is not None})

    def remove(self, name: ToolName | str) -> None:
        """Removes a tool, which is looked up as by `get`. Later calls of it fail.

        Raises:
            ToolNotFound: there is no such tool.
        """
        with self._lock:
            tool = self.get(name)
            if tool is None:
                raise self._not_found(str(name))
            self._change((tool,), ())

    def copy(self) -> ToolRegistry:
        """Returns a registry with the same tools that changes independently."""
        copied = ToolRegistry()
        copied._state = self._now()
        copied.outside = self.outside
        return copied

    # --- look-ups

    def get(self, name: ToolName | str) -> Tool | None:
        """Returns the tool with that guest name or, failing that, with that original name (`namespace.name` in a
        namespace)."""
        state = self._now()
        return state.by_path.get(str(name)) or state.by_original.get(str(name))

    def guest_name(self, path: str) -> str:
        """Returns the guest name for `path`, which can spell a reserved word in the other way."""
        state = self._now()
        return path if path in state.by_path else str(state.spellings.get(ToolName.parse(path), path))

    def spellings(self) -> Mapping[ToolName, ToolName]:
        """Returns guest names by alternative spellings, which exist for reserved words."""
        return self._now().spellings

    def resolve(self, path: str, *, helping: bool = True) -> Tool:
        """Returns the tool that a program calls by `path`, a guest name.

        Raises:
            ToolNotFound: there is no such tool. The message has similar names if `helping`.
        """
        tool = self._now().by_path.get(self.guest_name(path))
        if tool is None:
            raise self._not_found(path) if helping else ToolNotFound(f"no tool {quoted(path)}")
        return tool

    @checked_as(ToolDefinitionError)
    def search(self, query: str, *, namespace: str | None = None, limit: int = 10, offset: int = 0) -> ToolsFound:
        """Finds tools whose names, parameters or descriptions match words of the query. Matching names come first, then
        the best matches. A query without words finds all tools in the order of iteration. With `namespace`, only
        that namespace is searched."""
        state = self._now()
        paths, total = state.search_index.search(query, namespace=namespace, limit=limit, offset=offset)
        return ToolsFound([(ToolName.parse(path), state.by_path[path]) for path in paths], total)

    def near(self, path: str) -> list[str]:
        """Returns up to three guest names that are similar to an unknown one."""
        return self._now().search_index.near(path)

    def snapshot(self) -> Mapping[ToolName, Tool]:
        """Returns an immutable snapshot of the tools by guest name, in the order of iteration."""
        return self._now().by_name

    def names(self) -> tuple[ToolName, ...]:
        """Returns all guest names."""
        return tuple(self._now().by_name)

    @property
    def problems(self) -> Mapping[str, str]:
        """Reasons for missing tools, by the guest name of their namespace."""
        return {namespace: problem.text for namespace, problem in self._now().problems.items()}

    def computed(self, make: Callable[[Mapping[str, Tool]], T]) -> T:
        """Returns the result of `make` for the tools by guest name. It is cached until the tools change."""
        return self._now().computed(make)

    def namespaces(self) -> tuple[str, ...]:
        """Returns all namespaces by guest name, in alphabetical order."""
        return self._now().namespaces

    def untyped(self) -> tuple[ToolName, ...]:
        """Returns the tools without an output schema, whose results programs have to guess. Does not build lazy
        schemas."""
        return tuple(
            name for name, tool in self._now().by_name.items() if tool.has_schemas and tool.output_schema is None
        )

    def __iter__(self) -> Iterator[ToolName]:
        return iter(self._now().by_name)

    def __len__(self) -> int:
        return len(self._now().by_name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, ToolName | str) and self.get(name) is not None

    def __repr__(self) -> str:
        return f"<ToolRegistry of {len(self)} tool{'' if len(self) == 1 else 's'}>"

    def _now(self) -> _State:
        return self._state

    def _not_found(self, path: str) -> ToolNotFound:
        state = self._now()
        namespace, dot, _ = path.partition(".")
        if namespace in state.problems:
            return ToolNotFound(f"no tool {quoted(path)}: {state.problems[namespace].text}")
        if path in self.outside:
            return ToolNotFound(f"no tool {quoted(path)} in programs; call it as a separate tool")
        if (function := _SEARCHES.get(path)) is not None:
            return ToolNotFound(f"no tool {quoted(path)}; in programs it is tools.{function}")
        near = state.search_index.near(path)
        if near:
            return ToolNotFound(f"no tool {quoted(path)}; did you mean {' or '.join(near)}?")
        names = [str(name) for name in state.by_name if dot and name.namespace == namespace] or list(state.by_path)
        if not names:
            return ToolNotFound(f"no tool {quoted(path)}; there are none")
        if len(names) == len(state.by_path) > _LISTED_NAMES:  # a partial list would not help
            spaces = self.namespaces()
            among = f" in {', '.join(spaces)}" if 0 < len(spaces) <= _LISTED_NAMES else ""
            return ToolNotFound(f"no tool {quoted(path)}; there are {len(names)} others{among}")
        return ToolNotFound(f"no tool {quoted(path)}; there are: {', '.join(first_few(names, _LISTED_NAMES))}")


class _State:
    """State of a registry between two changes. Never modified. Indexes are built when first needed."""

    def __init__(
        self,
        spaces: Mapping[str | None, Mapping[str, Tool]],
        problems: Mapping[str, Problem],
        named: Mapping[ToolName, Tool] | None = None,
        whole: _State | None = None,
    ) -> None:
        self.spaces = spaces
        self.problems = problems
        """Reasons for missing tools, by the namespace that they belong to."""
        self._rank_by_name = named
        self._whole = whole
        """State of the whole registry, of which this is a view."""
        self._views: dict[tuple[frozenset[str], Shown | None], _State] = {}
        self._computed: dict[Callable[[Mapping[str, Tool]], Any], Any] = {}
        self._lock = threading.Lock()

    def visible_to(self, scopes: frozenset[str], shown: Shown | None = None) -> _State:
        """Returns the tools that a caller with these scopes may call; the same object for the same tools."""
        relevant = scopes & self._scopes, shown
        state = self._views.get(relevant)
        if state is None:
            with self._lock:
                state = self._views[relevant] = self._part(*relevant)
                while len(self._views) > _MOST_VIEWS or len({id(each) for each in self._views.values()}) > _MOST_PARTS:
                    del self._views[next(iter(self._views))]
        return state

    def _part(self, held: frozenset[str], shown: Shown | None) -> _State:
        named = {name: tool for name, tool in self.by_name.items() if tool.is_allowed_with(held)}
        if shown is not None:
            as_shown = {name: shown(str(name), tool) for name, tool in named.items()}
            named = {name: tool for name, tool in as_shown.items() if tool is not None}
        problems = {namespace: problem for namespace, problem in self.problems.items() if problem.scopes <= held}
        for known in (self, *self._views.values()):
            if known.by_name == named and known.problems == problems:
                return known
        spaces: dict[str | None, dict[str, Tool]] = {}
        for tool in named.values():
            spaces.setdefault(tool.namespace, {})[tool.name] = tool
        return _State(spaces, problems, MappingProxyType(named), whole=self)

    @cached_property
    def _scopes(self) -> frozenset[str]:
        """Scopes that some tool requires. Others make no difference."""
        asked = {scope for tool in self.by_name.values() for scope in tool.scopes | tool.any_scope}
        return frozenset(asked.union(*(problem.scopes for problem in self.problems.values())))

    @cached_property
    def by_name(self) -> Mapping[ToolName, Tool]:
        if self._rank_by_name is not None:
            return self._rank_by_name
        named: dict[ToolName, Tool] = {}
        for namespace, members in self.spaces.items():
            space = None if namespace is None else namespace_identifier(namespace)
            for original, name in distinct_identifiers(members).items():
                named[ToolName(space, name)] = members[original]
        return MappingProxyType({name: named[name] for name in sorted(named, key=_order)})

    @cached_property
    def namespaces(self) -> tuple[str, ...]:
        return tuple(sorted({name.namespace for name in self.by_name if name.namespace is not None}))

    @cached_property
    def by_path(self) -> Mapping[str, Tool]:
        return {str(name): tool for name, tool in self.by_name.items()}

    def computed(self, make: Callable[[Mapping[str, Tool]], T]) -> T:
        if make not in self._computed:
            self._computed[make] = make(self.by_path)
        return self._computed[make]

    @cached_property
    def spellings(self) -> Mapping[ToolName, ToolName]:
        spelled: dict[ToolName, ToolName] = {}
        for name in self.by_name:
            spaces = {
                name.namespace,
                None if name.namespace is None else other_spelling(name.namespace) or name.namespace,
            }
            others = {name.name, other_spelling(name.name) or name.name}
            spelled |= {ToolName(space, other): name for space in spaces for other in others}
        return {other: name for other, name in spelled.items() if other not in self.by_name}

    @cached_property
    def by_original(self) -> Mapping[str, Tool]:
        return {
            name if namespace is None else f"{namespace}.{name}": tool
            for namespace, members in self.spaces.items()
            for name, tool in members.items()
        }

    @cached_property
    def search_index(self) -> _SearchIndex:
        return _SearchIndex(self.entries.values())

    @cached_property
    def entries(self) -> Mapping[ToolName, Entry]:
        if self._whole is not None:
            return {name: self._whole.entries[name] for name in self.by_name}
        return {name: Entry(name, tool) for name, tool in self.by_name.items()}


class _View(ToolRegistry):
    """View of another registry: the tools that a caller with certain scopes may call. Changes apply to both."""

    def __init__(
        self,
        scopes: frozenset[str],
        shown: Shown | None,
        *,
        now: Callable[[], _State],
        change: Callable[..., None],
        hidden: Callable[[str], Tool | None],
        hides: Callable[[], bool],
    ) -> None:
        self._scopes, self._shown = scopes, shown
        self._whole_now, self._whole_change, self._whole_hidden, self._whole_hides = now, change, hidden, hides
        super().__init__()

    @override
    def hides(self) -> bool:
        return self._now() is not self._whole_now() or self._whole_hides()

    @override
    def hidden(self, name: str) -> Tool | None:
        if name in self._now().by_path:
            return None
        return self._whole_hidden(name) or self._whole_now().by_path.get(name)

    @override
    def _now(self) -> _State:
        return self._whole_now().visible_to(self._scopes, self._shown)

    @override
    def _change(
        self, gone: Iterable[Tool], added: Iterable[Tool], problems: Mapping[str, Problem | None] = MappingProxyType({})
    ) -> None:
        if gone or added or problems:
            spaces = self._whole_now().spaces
            originals = [(each, spaces.get(each.namespace, {}).get(each.name, each)) for each in gone]
            gone = [known if known.function is each.function else each for each, known in originals]
            self._whole_change(gone, added, problems)


def _order(name: ToolName) -> tuple[str, str]:
    return name.namespace or "", name.name


def _require_free(tool: Tool, spaces: Mapping[str | None, Mapping[str, Tool]]) -> None:
    """Raises ToolDefinitionError if the tool cannot be called next to the tools in `spaces`."""
    if tool.name in spaces.get(tool.namespace, {}):
        there = "" if tool.namespace is None else f" in the namespace {tool.namespace!r}"
        raise ToolDefinitionError(f"there is already a tool {tool.name!r}{there}; rename one")
    if tool.namespace is None:
        name = identifier(tool.name)
        if name in RESERVED_ROOT_NAMES:
            raise ToolDefinitionError(
                f"the tool name {tool.name!r} is reserved for searching tools; use another one, or a namespace"
            )
        if name in {namespace_identifier(space) for space in spaces if space is not None}:
            raise ToolDefinitionError(f"the tool {tool.name!r} has the same name as a namespace; rename one")
    elif tool.namespace not in spaces:
        name = namespace_identifier(tool.namespace)
        for other in spaces:
            if other is not None and namespace_identifier(other) == name:
                both = f"{other!r} and {tool.namespace!r}"
                raise ToolDefinitionError(f"the namespaces {both} both become {name!r}; rename one")
        if name in {identifier(other) for other in spaces.get(None, {})}:
            raise ToolDefinitionError(f"the namespace {tool.namespace!r} has the same name as a tool; rename one")
