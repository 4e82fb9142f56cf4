"""Rules of one policy file. All that match count, and the most restrictive decides, so their order means nothing."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, PydanticUserError, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticSerializationError, from_json, to_json

from corral.errors import ConfigError
from corral.policy.conditions import Condition, none_holds
from corral.tools import Tool
from corral.tools.names import RESERVED_ROOT_NAMES
from corral.tools.rates import Rate, RateLimit, RateScope, parse_rates
from corral.types import ExecutionContext

Decision: TypeAlias = Literal["allow", "limit", "ask", "deny"]
"""Decision on a call, from the least to the most restrictive."""

RANKS: Mapping[Decision, int] = {"allow": 0, "limit": 1, "ask": 2, "deny": 3}
MOST_CHARS = 1_000_000
"""Maximum size of a file."""
_MOST_RULES = 2_000
_MOST_NAMES = 10_000
"""Maximum number of tools for which matching rules are kept."""
_PART = 16
"""Number of rules whose patterns of tools are matched at once."""
_FEW = 10
"""Number of rules that are judged one by one. More rules are divided into at most as many parts."""
_MOST_JOINED = 200
"""Maximum number of rules that are judged by one schema, which takes up to 10 ms to compile."""
_MOST_INDEXED = 20_000
"""Maximum number of rules in all trees, beyond which trees are rebuilt."""
_JOINED_PATTERN_BYTES = 200_000
"""Maximum size of a compiled pattern in a schema for several rules, which is compiled during a call."""
_REMARK_CHARS = 200
_ID = r"^[\w.-]{1,100}$"

Globs: TypeAlias = Annotated[list[Annotated[str, Field(pattern=r"^[\w$*.]{1,200}$")]], Field(min_length=1)]
"""Patterns of tools' names in programs: `*` stands for any characters within a segment, `**` also for dots."""
Conditions: TypeAlias = dict[str, JsonValue]


class _Part(BaseModel):
    # Built at the first policy, which takes a quarter of the time that importing corral takes.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True, defer_build=True)


class Who(_Part):
    """Callers that a rule is about: with at least one of the scopes, and in one of the organizations."""

    scopes: list[str] = Field(default=[], min_length=1)
    organizations: list[str] = Field(default=[], min_length=1)


class Rule(_Part):
    """Table `[[rule]]` of a policy file."""

    id: str = Field(pattern=_ID)
    tools: Globs
    do: Decision
    when: Conditions = {}
    """Conditions that must all be true for the rule to match, by the name of a field of the input."""
    unless: Conditions = {}
    """Conditions that keep the rule from matching if all of them are true."""
    who: Who = Who()
    reason: str = Field(default="", max_length=500)
    """Reason for programs and approvers."""
    limit: str | dict[str, str] | None = None
    """Rate for the tools of this rule together, as in `@tool(rate_limit=...)`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.do == "limit" and self.limit is None:
            raise ValueError('do = "limit" needs a rate, such as limit = "20/day"')
        if self.limit is not None and self.do not in ("allow", "limit"):
            raise ValueError(f'limit is for do = "allow" or "limit", not "{self.do}"')
        return self


class Label(_Part):
    """Table `[[label]]` of a policy file: properties of tools, for the flow of data."""

    tools: Globs
    untrusted: bool | None = None
    """True if results have text that others wrote."""
    sends: list[str] = []
    """Parameters that say where something goes. A dot leads into an object: `message.to`."""
    changes: bool | None = None
    """True if calls delete, book, pay or otherwise change something that matters."""
    known: list[Annotated[str, Field(pattern=r"^[^*\s]([^*]*[^*\s])?$")]] = []
    """Destinations that belong to the host: `@acme.com`, `https://acme.com`, or a whole value such as `#general`."""


class Caller(_Part):
    """Caller in a test of a policy file."""

    user_id: str = "anonymous"
    organization_id: str | None = None
    scopes: list[str] = []


class Case(_Part):
    """Table `[[test]]` of a policy file."""

    tool: str
    arguments: dict[str, JsonValue] = {}
    context: Caller = Field(default_factory=Caller)
    expect: Decision


class _End(_Part):
    pass


class Document(_Part):
    """Whole policy file."""

    default: Literal["allow", "ask", "deny"] | None = None
    """Decision on calls that no rule allows. By default "deny" if any rule allows calls, else "allow"."""
    mode: Literal["enforce", "observe"] = "enforce"
    """With "observe", decisions are recorded and not enforced."""
    rule: list[Rule] = Field(default=[], max_length=_MOST_RULES)
    label: list[Label] = Field(default=[], max_length=_MOST_RULES)
    test: list[Case] = Field(default=[], max_length=_MOST_RULES)
    end: _End
    """Last line of the file, `[end]`, without which the file is refused: it has been cut off."""


class PolicyCall:
    """Call on which a policy decides."""

    __slots__ = (
        "_forms",
        "context",
        "execution_id",
        "input",
        "is_own",
        "names",
        "scopes",
        "sequence",
        "tool",
        "validated",
    )

    def __init__(
        self,
        tool: str,
        input: object,
        context: ExecutionContext,
        *,
        scopes: frozenset[str] | None = None,
        validated: object = None,
        names: tuple[str, ...] = (),
        is_own: bool | None = None,
        execution_id: str | None = None,
        sequence: int | None = None,
    ) -> None:
        self.tool = tool
        """Name of the tool in programs: `name` or `namespace.name`."""
        self.input = input
        """Input as the program passed it: plain data."""
        self.context = context
        self.scopes = context.scopes if scopes is None else scopes
        """The caller's scopes and the scopes they imply."""
        self.validated = validated
        """Input as the tool will receive it, with defaults and converted values; None if that is not known."""
        self.names = names or (tool,)
        """All names of the tool, its name in programs first."""
        self.is_own = tool in RESERVED_ROOT_NAMES if is_own is None else is_own
        """True for `search` and `describe`, to which a file's default does not apply."""
        self.execution_id = execution_id
        self.sequence = sequence
        self._forms: tuple[object, ...] | None = None

    @property
    def forms(self) -> tuple[object, ...]:
        """The input as passed and as validated, as JSON; `UNREADABLE` in place of one without a JSON form."""
        if self._forms is None:
            texts = {_json_text(self.input): None}
            if self.validated is not None:
                texts[_json_text(self.validated)] = None
            self._forms = tuple(map(_read, texts))
        return self._forms


UNREADABLE = object()


@lru_cache(1024)
def names_of(path: str, tool: Tool) -> tuple[str, ...]:
    """Returns all names of a tool: in programs, there if no other had a similar name, and the host's own.

    Its name in programs changes if another tool with a similar name is added.
    """
    return tuple(dict.fromkeys((path, tool.label, tool.original_path)))


def _json_text(value: object) -> bytes:
    """Returns the value as JSON; an empty text if it has no such form."""
    try:
        return to_json(value, by_alias=True, bytes_mode="base64", inf_nan_mode="constants")
    except (ValueError, RecursionError, PydanticSerializationError, PydanticUserError):
        return b""


def _read(text: bytes) -> object:
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError:
        return UNREADABLE


class Limit(NamedTuple):
    """Rates of a rule, whose tools share them."""

    rule: str
    rates: Mapping[RateScope, Rate]


class Globbed:
    """Set of tools, by patterns of their names.

    Raises:
        ValueError: the patterns are too many for one regular expression.
    """

    def __init__(self, globs: Sequence[str], *, ignore_case: bool) -> None:
        import jsonschema_rs  # takes 0.1 s

        self._is_any = "**" in globs
        pattern = f"{'(?i)' if ignore_case else ''}^(?:{'|'.join(map(_pattern_of, globs))})$"
        options = jsonschema_rs.RegexOptions()
        try:
            self._pattern: Any = jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=options)
        except ValueError:
            raise ValueError(
                f"its {len(globs)} patterns of tools are too many for one table; use several, or shorter patterns"
            ) from None

    def has(self, names: Iterable[str]) -> bool:
        """True if a pattern matches any of the names."""
        return self._is_any or any(self._pattern.is_valid(name) for name in names)


def _pattern_of(glob: str) -> str:
    text = re.escape(glob).replace(r"\*\*", "\0").replace(r"\*", "[^.]*")
    if text.startswith("\0\\."):
        text = "(?:.*\\.)?" + text[3:]
    return text.replace("\0", ".*")


class RuleSet:
    """Compiled rules of one file.

    Raises:
        ConfigError: the text is not TOML, or not a policy; the message has the table and the reason.
    """

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self.document = _parsed(text, name)
        document = self.document
        self.rules = tuple(CompiledRule(each, f"{name}: rule {each.id!r}") for each in document.rule)
        if twice := _twice(each.id for each in document.rule):
            raise ConfigError(f"{name}: two rules have the id {twice!r}; rename one of them")
        allows = any(each.do == "allow" for each in document.rule)
        self.default: Decision = document.default or ("deny" if allows else "allow")
        self.observes = document.mode == "observe"
        try:
            self._labels = [(Globbed(each.tools, ignore_case=False), each) for each in document.label]
        except ValueError as error:
            raise ConfigError(f"{name}: a label: {error}") from None
        self._organizations = frozenset(name for each in document.rule for name in each.who.organizations)
        self._scopes = frozenset(scope for each in document.rule for scope in each.who.scopes)
        self._parts = [*_parts(self.rules)]
        self._by_tool: dict[tuple[str, ...], tuple[CompiledRule, ...]] = {}
        self._by_caller: dict[tuple[tuple[str, ...], str | None, frozenset[str]], _Applicable] = {}
        self._applicable: dict[tuple[CompiledRule, ...], _Applicable] = {}

    def rules_of(self, names: tuple[str, ...]) -> tuple[CompiledRule, ...]:
        """Returns the rules about a tool, which has these names, the one in programs first."""
        rules = self._by_tool.get(names)
        if rules is None:
            if len(self._by_tool) >= _MOST_NAMES:
                self._by_tool.clear()
            rules = self._by_tool[names] = tuple(
                each
                for globbed, part in self._parts
                if globbed is None or globbed.has(names)
                for each in part
                if each.is_about(names)
            )
        return rules

    def _rules_for(self, call: PolicyCall) -> _Applicable:
        """Returns the rules about the call's tool and caller. Tools and callers with the same rules share them."""
        organization = call.context.organization_id
        key = call.names, organization if organization in self._organizations else None, call.scopes & self._scopes
        applicable = self._by_caller.get(key)
        if applicable is None:
            rules = tuple(each for each in self.rules_of(call.names) if each.is_for(call.context, call.scopes))
            if sum(map(len, self._applicable)) > _MOST_INDEXED:
                self._applicable.clear()
                self._by_caller.clear()
            if len(self._by_caller) >= _MOST_NAMES:
                self._by_caller.clear()
            applicable = self._applicable.get(rules)
            if applicable is None:
                applicable = self._applicable[rules] = _Applicable(rules)
            self._by_caller[key] = applicable
        return applicable

    def decide(self, call: PolicyCall) -> tuple[Decision, list[Rule], list[Limit]]:
        """Returns the decision, the rules that matched, the most restrictive first, and the limits to count.

        Without a rule that allows the call, the decision is at least the file's default.
        """
        matching = self._rules_for(call).matching(call)
        decision: Decision = "allow" if call.is_own else self.default
        if not matching:
            return decision, [], []
        matching.sort(key=_restriction, reverse=True)
        if matching[-1].allows:  # the least restrictive one
            decision = "allow"
        if matching[0].rank > RANKS[decision]:
            decision = matching[0].rule.do
        limits = [each.limit for each in matching if each.limit is not None]
        if limits and decision == "allow":
            decision = "limit"
        return decision, [each.rule for each in matching], limits

    def labels_of(self, path: str) -> tuple[Label, ...]:
        """Returns the labels of a tool with this name in programs."""
        return tuple(label for globs, label in self._labels if globs.has((path,)))

    def rules_for(self, context: ExecutionContext, scopes: frozenset[str]) -> frozenset[CompiledRule]:
        """Returns the rules about a caller."""
        return frozenset(each for each in self.rules if each.is_for(context, scopes))

    def remark(self, names: tuple[str, ...], rules: frozenset[CompiledRule]) -> str | None:
        """Returns a remark on a tool for models, empty if there is nothing to say; None if all calls are denied.

        `rules` are those about the caller.
        """
        about = [each for each in self.rules_of(names) if each in rules]
        if any(each.rule.do == "deny" and each.is_unconditional for each in about):
            return None
        if self.default == "deny" and not any(each.rule.do == "allow" for each in about):
            return None
        return "; ".join(dict.fromkeys(each.remark for each in about if each.remark))


def _parts(rules: Sequence[CompiledRule]) -> Iterator[tuple[Globbed | None, Sequence[CompiledRule]]]:
    """Yields the rules in parts, each with the set of tools that one of them might be about; None for any tool."""
    for start in range(0, len(rules), _PART):
        part = rules[start : start + _PART]
        try:
            yield Globbed([glob for each in part for glob in each.rule.tools], ignore_case=True), part
        except ValueError:  # too many patterns
            yield None, part


class CompiledRule:
    """Rule that is ready to be matched with calls."""

    def __init__(self, rule: Rule, where: str) -> None:
        self.rule = rule
        self.allows = rule.do == "allow"
        self._scopes = frozenset(rule.who.scopes)
        self._organizations = frozenset(rule.who.organizations)
        try:
            self._tools = Globbed(rule.tools, ignore_case=not self.allows)
            self.when = Condition(rule.when, excuses=self.allows) if rule.when else None
            self.unless = Condition(rule.unless, excuses=not self.allows) if rule.unless else None
            rates = parse_rates(cast("RateLimit | None", rule.limit))  # which checks the scopes
        except ValueError as error:
            raise ConfigError(f"{where}: {' '.join(str(error).split())[:500]}") from None
        self.limit = Limit(rule.id, rates) if rates else None
        self.is_unconditional = self.when is None and self.unless is None
        self.rank = RANKS[rule.do]
        self._when = None if self.when is None else self.when.holds
        self._unless = None if self.unless is None else self.unless.holds
        self.remark = _remark(rule)
        """Condition for models, in a few words; empty if it needs more."""

    def is_about(self, names: tuple[str, ...]) -> bool:
        """True if the rule is about a tool. A rule that allows needs the name in programs; another takes any name."""
        return self._tools.has(names[:1] if self.allows else names)

    def is_for(self, context: ExecutionContext, scopes: frozenset[str]) -> bool:
        """True if the rule is about the caller, who has these scopes."""
        if self._scopes and self._scopes.isdisjoint(scopes):
            return False
        return not self._organizations or context.organization_id in self._organizations

    def matches(self, forms: Iterable[object]) -> bool:
        """True if the rule's conditions hold for a call of a caller that it is about, with these forms of its input.

        A rule that allows must match both forms of the input, any other rule only one of them. An input that cannot
        be read satisfies no condition of a rule that allows, and all those of other rules.
        """
        allows, when, unless = self.allows, self._when, self._unless
        for form in forms:
            if form is UNREADABLE:
                holds = not allows
            else:
                holds = (when is None or when(form)) and (unless is None or not unless(form))
            if holds is not allows:
                return not allows
        return allows


class _Applicable:
    """Rules about certain tools and callers."""

    def __init__(self, rules: tuple[CompiledRule, ...]) -> None:
        self._always = [each for each in rules if each.is_unconditional]
        conditional = [each for each in rules if not each.is_unconditional]
        self._trees = [
            _Tree(part, allows=allows)
            for allows in (True, False)
            if (part := [each for each in conditional if each.allows is allows])
        ]

    def matching(self, call: PolicyCall) -> list[CompiledRule]:
        """Returns the rules that match a call."""
        matching = [*self._always]
        can_compile = True
        for tree in self._trees:
            can_compile = tree.find(call, matching, can_compile=can_compile)
        return matching


class _Tree:
    """Rules with conditions, all of which allow, or none. Two schemas show that no rule of a part matches, or each."""

    def __init__(self, rules: Sequence[CompiledRule], *, allows: bool) -> None:
        self._rules = rules
        self._allows = allows
        self._none: Any = None
        self._all: Any = None
        self._is_used = False
        self._uncompiled = 2 if 2 < len(rules) <= _MOST_JOINED else 0
        """Number of schemas that are compiled during the next calls."""
        size = max(_FEW, -(-len(rules) // _FEW))
        parts = [rules[start : start + size] for start in range(0, len(rules), size)]
        self._parts = [_Tree(each, allows=allows) for each in parts] if len(parts) > 1 else []

    def find(self, call: PolicyCall, matching: list[CompiledRule], *, can_compile: bool) -> bool:
        """Adds the rules that match a call. Compiles at most one schema, and returns False if it did."""
        if self._uncompiled:
            if self._is_used and can_compile:
                self._compile()
                can_compile = False
            self._is_used = True
        if self._none is not None and self._excludes(call):
            return can_compile
        if self._all is not None and self._includes(call):
            matching += self._rules
            return can_compile
        if not self._parts:
            forms = call.forms
            matching += [each for each in self._rules if each.matches(forms)]
        for part in self._parts:
            can_compile = part.find(call, matching, can_compile=can_compile)
        return can_compile

    def _excludes(self, call: PolicyCall) -> bool:
        """True if no rule matches. A rule that allows needs both forms of the input, another one of them."""
        if self._allows:
            return any(form is UNREADABLE or self._none.is_valid(form) for form in call.forms)
        return all(form is not UNREADABLE and self._none.is_valid(form) for form in call.forms)

    def _includes(self, call: PolicyCall) -> bool:
        """True if all rules match."""
        if self._allows:
            return all(form is not UNREADABLE and self._all.is_valid(form) for form in call.forms)
        return any(form is UNREADABLE or self._all.is_valid(form) for form in call.forms)

    def _compile(self) -> None:
        self._uncompiled -= 1
        try:
            if self._uncompiled:
                self._none = none_holds([(each.when, each.unless) for each in self._rules], _JOINED_PATTERN_BYTES)
            else:  # each `when` is true, and each `unless` is false
                parts = [pair for each in self._rules for pair in ((None, each.when), (each.unless, None))]
                self._all = none_holds([pair for pair in parts if any(pair)], _JOINED_PATTERN_BYTES)
        except ValueError:  # a pattern is too large; the parts without it have schemas
            pass


def _remark(rule: Rule) -> str:
    texts = [_in_words(name, schema) for name, schema in rule.unless.items()]
    if rule.when or None in texts:
        return ""
    unless = " and ".join(filter(None, texts))
    match rule.do:
        case "deny" if unless:
            text = f"denied unless {unless}"
        case "ask":
            text = f"needs approval unless {unless}" if unless else "needs approval"
        case _:
            text = ""
    return text if len(text) <= _REMARK_CHARS else ""


def _in_words(name: str, schema: JsonValue) -> str | None:
    """Describes a condition on one field, such as `0 < amount <= 500`; None if it has another form."""
    if not isinstance(schema, dict) or not schema or not schema.keys() <= _IN_WORDS:
        return None
    if not all(isinstance(value, int | float | str | list) for value in schema.values()):
        return None
    low = next((f"{schema[each]} {sign} " for each, sign in _LOWER.items() if each in schema), "")
    high = next((f" {sign} {schema[each]}" for each, sign in _UPPER.items() if each in schema), "")
    parts = [f"{low}{name}{high}"] if low or high else []
    parts += [f"{name} is {json.dumps(schema['const'])}"] if "const" in schema else []
    parts += [f"{name} is one of {json.dumps(schema['enum'])[1:-1]}"] if "enum" in schema else []
    parts += [f"{name} is in {schema['path_under']}"] if "path_under" in schema else []
    parts += [f"{name} matches {schema['pattern']}"] if "pattern" in schema else []
    return " and ".join(parts) or None


_LOWER = {"exclusiveMinimum": "<", "minimum": "<="}
_UPPER = {"exclusiveMaximum": "<", "maximum": "<="}
_IN_WORDS = {"type", "const", "enum", "path_under", "pattern", *_LOWER, *_UPPER}


_restriction = attrgetter("rank")


def _twice(ids: Iterable[str]) -> str | None:
    """Returns a text that occurs more than once, if any."""
    known: set[str] = set()
    for each in ids:
        if each in known:
            return each
        known.add(each)
    return None


def _parsed(text: str, name: str) -> Document:
    if len(text) > MOST_CHARS:
        raise ConfigError(f"{name}: the policy has more than {MOST_CHARS:,} characters; use several files")
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name}: not TOML: {error}") from None
    if text.rstrip().rpartition("\n")[2].strip() != "[end]":
        raise ConfigError(f"{name}: the last line must be [end], which shows that the file was not truncated")
    try:
        return Document.model_validate(data)
    except (ValidationError, RecursionError) as error:
        problems = error.errors() if isinstance(error, ValidationError) else []
        texts = [f"{_place(each['loc'], data)}: {_reason(each)}" for each in problems[:5]]
        raise ConfigError(f"{name}: {'; '.join(texts) or 'nested too deeply'}") from None


def _reason(problem: ErrorDetails) -> str:
    if problem["type"] == "extra_forbidden":
        return "there is no such key"
    return problem["msg"].removeprefix("Value error, ")


def _place(location: Sequence[object], data: Mapping[str, Any]) -> str:
    """Returns the place of a problem: `rule 'id'.field`, or the number of a table that has no id."""
    if len(location) < 2 or not isinstance(location[1], int):
        return ".".join(map(str, location)) or "the file"
    table: Any = data[str(location[0])][location[1]]
    name: Any = cast("dict[str, Any]", table).get("id") if isinstance(table, dict) else None
    which = repr(name) if isinstance(name, str) else location[1] + 1
    return ".".join([f"{location[0]} {which}", *map(str, location[2:])])
