"""Checks arguments of public functions against their type hints, with errors that name the remedy.

`checked` decorates a function or a class. The hints are read on the first call; each later call costs a dictionary
look-up and an `isinstance` per argument.
"""

from __future__ import annotations

import inspect
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import wraps
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import typing_extensions
from typing_extensions import get_protocol_members, is_protocol, is_typeddict

from corral.errors import ConfigError
from corral.rendering.lists import either
from corral.rendering.suggestions import NearNames

F = TypeVar("F", bound=Callable[..., Any])

_ALIASES: Mapping[str, str] = {"js": "typescript", "javascript": "typescript", "ts": "typescript", "py": "python"}
_SUCH_AS: Mapping[str, str] = {
    "approve": "lambda request: True",
    "audit": '"audit.jsonl"',
    "command": '["program", "argument"]',
    "context": 'ExecutionContext(user_id="u1")',
    "corrals": "Corral(tools=[...])",
    "document": 'Path("openapi.json")',
    "env": '{"MODE": "test"}',
    "implied_scopes": '{"admin": ["read", "write"]}',
    "limits": "Limits(calls=3)",
    "on_event": "print",
    "packages": '[NpmPackages("corral-packages")]',
    "rate_limit": '"30/minute"',
    "rates": 'RateLimits(user="30/minute")',
    "sandbox": '"auto"',
    "scopes": '["read"]',
    "sinks": '"audit.jsonl"',
    "tools": "[add, search]",
}
"""Example values for parameters whose type alone does not explain them."""
_MOST_LOOKED_AT = 10_000
"""Maximum number of elements of a collection that are checked."""
_NAME_CHARS = 60
_METHODS = 3
"""Maximum number of names in a suggestion."""


def near(word: str, known: Iterable[str]) -> str | None:
    """Returns the known name closest to a misspelt one, if any."""
    names = list(known)
    alias = _ALIASES.get(word.lower())
    if alias in names:
        return alias
    by_lower_case = {name.lower(): name for name in reversed(names)}
    matches = NearNames(by_lower_case).of(word.lower())
    return by_lower_case[matches[0]] if matches else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns "did you mean ...? " with a trailing space, or an empty string if no name is close."""
    match = near(word, known)
    return f"did you mean {match!r}? " if match else ""


# --- kinds of values ------------------------------------------------------------------------------------------


class _Kind(ABC):
    """Set of values that a type hint allows, with its description."""

    words: tuple[str, ...] = ()
    """Descriptions of the alternatives, for an error message."""

    @property
    def text(self) -> str:
        return either(self.words)

    @abstractmethod
    def fits(self, value: object) -> bool: ...

    def fault(self, value: object, place: str) -> tuple[str, object, _Kind]:
        """Returns the innermost mismatch: its path, the value there, and the expected kind."""
        return place, value, self

    def parts(self) -> Iterator[_Kind]:
        """Yields the alternatives of a union; by default, only this kind."""
        yield self


class _Anything(_Kind):
    def fits(self, value: object) -> bool:  # noqa: ARG002
        return True


class _OfClass(_Kind):
    def __init__(self, cls: type, text: str) -> None:
        self.cls = cls
        self.words = (text,)

    def fits(self, value: object) -> bool:
        return isinstance(value, self.cls)


class _Number(_OfClass):
    """Numbers except True and False, which are ints in Python."""

    def fits(self, value: object) -> bool:
        return isinstance(value, self.cls) and not isinstance(value, bool)


class _OneOf(_Kind):
    def __init__(self, values: tuple[object, ...]) -> None:
        self.values = values
        self.words = tuple(map(repr, values))

    def fits(self, value: object) -> bool:
        return any(type(value) is type(each) and value == each for each in self.values)


class _Function(_Kind):
    words = ("a function",)

    def fits(self, value: object) -> bool:
        return callable(value)


class _Shaped(_Kind):
    """Objects that have all members of a protocol."""

    def __init__(self, protocol: type) -> None:
        self._members = get_protocol_members(protocol)
        self.words = (protocol.__name__,)

    def fits(self, value: object) -> bool:
        return all(_has(value, member) for member in self._members)


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def _has(value: object, member: str) -> bool:
    """True if `value` has the member. Properties are not evaluated, because that could be slow."""
    return hasattr(type(value), member) or hasattr(value, member)


class _Elements(_Kind):
    """Iterables except strings; the elements of collections are checked too."""

    def __init__(self, cls: type, element: _Kind) -> None:
        self._cls = cls
        self.element = element
        self.words = (f"a list of {element.text.replace('a function', 'function')}" if element.text else "a list",)

    def fits(self, value: object) -> bool:
        return self.has_form(value) and all(map(self.element.fits, self._seen(value)))

    def has_form(self, value: object) -> bool:
        return isinstance(value, self._cls) and not isinstance(value, str | bytes)

    def fault(self, value: object, place: str) -> tuple[str, object, _Kind]:
        if self.has_form(value) and not _is_mapping(value):
            for number, each in enumerate(self._seen(value)):
                if not self.element.fits(each):
                    return self.element.fault(each, f"{place}[{number}]")
        return place, value, self

    def _seen(self, value: object) -> Iterable[object]:
        known = cast("Collection[object]", value) if isinstance(value, Collection) else ()
        return known if len(known) <= _MOST_LOOKED_AT else ()


class _Entries(_Kind):
    """Mappings."""

    def __init__(self, key: _Kind, value: _Kind) -> None:
        self._key, self._value = key, value
        self.words = (f"a dict from {key.text} to {value.text}" if key.text and value.text else "a dict",)

    def fits(self, value: object) -> bool:
        return self.has_form(value) and not any(self._wrong(value))

    def has_form(self, value: object) -> bool:
        return isinstance(value, Mapping)

    def fault(self, value: object, place: str) -> tuple[str, object, _Kind]:
        if self.has_form(value):
            for key, each, kind, inside in self._wrong(value):
                return (
                    kind.fault(each, f"{place}[{key!r:.{_NAME_CHARS}}]") if inside else (f"a key of {place}", key, kind)
                )
        return place, value, self

    def _wrong(self, value: object) -> Iterator[tuple[object, object, _Kind, bool]]:
        entries = cast("Mapping[object, object]", value)
        if len(entries) > _MOST_LOOKED_AT:
            return
        for key, each in entries.items():
            if not self._key.fits(key):
                yield key, each, self._key, False
            elif not self._value.fits(each):
                yield key, each, self._value, True


class _Union(_Kind):
    def __init__(self, kinds: list[_Kind]) -> None:
        self._kinds = [each for kind in kinds for each in kind.parts()]
        self.words = tuple(dict.fromkeys(word for each in self._kinds for word in each.words))

    def fits(self, value: object) -> bool:
        return any(each.fits(value) for each in self._kinds)

    def fault(self, value: object, place: str) -> tuple[str, object, _Kind]:
        for each in self._kinds:
            if isinstance(each, _Elements | _Entries) and each.has_form(value):
                return each.fault(value, place)
        return place, value, self

    def parts(self) -> Iterator[_Kind]:
        yield from self._kinds


_UNPACK = (typing.Unpack, typing_extensions.Unpack)
_ANYTHING = _Anything()
_SIMPLE: Mapping[object, _Kind] = {
    Any: _ANYTHING,
    object: _ANYTHING,
    None: _OfClass(NoneType, "None"),
    NoneType: _OfClass(NoneType, "None"),
    bool: _OneOf((True, False)),
    int: _Number(Integral, "a whole number"),
    float: _Number(Real, "a number"),
    str: _OfClass(str, "str"),
}


def _kind_of(hint: object) -> _Kind:
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _kind_of(arguments[0])
    if origin is Literal:
        return _OneOf(arguments)
    if origin in (Union, UnionType):
        kinds = [_kind_of(each) for each in arguments]
        return _ANYTHING if _ANYTHING in kinds else _Union(kinds)
    cls = origin or hint
    if cls is Callable or cls is cast("Any", get_origin(Callable[..., Any])):
        return _Function()
    if not isinstance(cls, type):
        return _ANYTHING
    return _kind_of_class(cls, arguments)


def _kind_of_class(cls: type[Any], arguments: tuple[Any, ...]) -> _Kind:
    if is_typeddict(cls):
        return _Entries(_ANYTHING, _ANYTHING)
    if is_protocol(cls):
        return _Shaped(cls)
    if not arguments or cls.__module__ not in ("builtins", "collections.abc"):
        return _OfClass(cls, cls.__name__)
    if issubclass(cls, Mapping):
        return _Entries(*map(_kind_of, arguments))
    return _Elements(cls, _ANYTHING if cls is tuple else _kind_of(arguments[0]))


# --- functions ------------------------------------------------------------------------------------------------


class _Parameters:
    """Parameters of a function, by name."""

    def __init__(self, function: Callable[..., Any], owner: str, error: type[ConfigError]) -> None:
        self._owner = owner
        self._error = error
        self.kinds: dict[str, _Kind] = {}
        self.positional: list[str] = []
        self.rest: tuple[str, _Kind] | None = None
        self._more = False
        hints = _hints_of(function)
        for number, each in enumerate(inspect.signature(function).parameters.values()):
            if number == 0 and each.name in ("self", "cls"):
                continue
            self._add(each, hints.get(each.name, Any))

    def _add(self, parameter: inspect.Parameter, hint: Any) -> None:
        name = parameter.name
        if parameter.kind is parameter.VAR_KEYWORD:
            if get_origin(hint) in _UNPACK:
                (options,) = get_args(hint)
                options = get_type_hints(get_origin(options) or options, include_extras=True)
                self.kinds.update({key: _kind_of(each) for key, each in options.items()})
            else:
                self._more = True
        elif parameter.kind is parameter.VAR_POSITIONAL:
            self.rest = (name, _kind_of(hint))
        else:
            self.kinds[name] = _kind_of(hint)
            if parameter.kind is not parameter.KEYWORD_ONLY:
                self.positional.append(name)

    def problem(self, arguments: tuple[object, ...], keywords: Mapping[str, object]) -> ConfigError | None:
        """Returns the error of a wrong call."""
        kinds = self.kinds
        for name, value in keywords.items():
            kind = kinds.get(name)
            if kind is None:
                if not self._more:
                    return self._unknown(name)
            elif not kind.fits(value):
                return self._wrong(self._call(arguments, keywords), name, value, kind)
        if len(arguments) > len(self.positional) and self.rest is None:
            return self._too_many(arguments)
        for name, value in zip(self.positional, arguments, strict=False):
            if not kinds[name].fits(value):
                return self._wrong(self._call(arguments, keywords), name, value, kinds[name])
        if self.rest is not None:
            for value in arguments[len(self.positional) :]:
                if not self.rest[1].fits(value):
                    return self._wrong(f"{self._owner}()", self.rest[0], value, self.rest[1])
        return None

    def _unknown(self, name: str) -> ConfigError:
        match = near(name, self.kinds)
        hint = f"did you mean {match}=...?" if match else f"it takes {', '.join(self.kinds) or 'none'}"
        return self._error(f"{self._owner}() has no parameter {name[:_NAME_CHARS]!r}; {hint}")

    def _too_many(self, arguments: tuple[object, ...]) -> ConfigError:
        first, count = self.positional, len(arguments)
        takes = f"takes {', '.join(first)} by position, and others by name" if first else "takes keyword arguments only"
        listing = isinstance(self.kinds[first[-1]], _Union | _Elements) if first else False
        one_list = listing and all(self.kinds[first[-1]].fits([each]) for each in arguments[len(first) - 1 :])
        hint = f"; did you mean one list, {first[-1]}=[...]?" if one_list else ""
        return self._error(f"{self._owner}() {takes}; got {count}{hint}")

    def _call(self, arguments: tuple[object, ...], keywords: Mapping[str, object]) -> str:
        """Formats the call for an error message, with its `name` argument if it has one."""
        name = arguments[0] if self.positional[:1] == ["name"] and arguments else keywords.get("name")
        return f"{self._owner}({name[:_NAME_CHARS]!r})" if isinstance(name, str) else f"{self._owner}()"

    def _wrong(self, call: str, name: str, value: object, kind: _Kind) -> ConfigError:
        place, inner, fitting = kind.fault(value, name)
        takes = f"{place} takes {fitting.text}, not {_shown(inner, fitting)}"
        return self._error(f"{call}: {takes}{_remedy(name, value, inner, fitting)}")


def _hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns the type hints; a name that only type checkers know counts as Any."""
    unknown: dict[str, Any] = {}
    while True:
        try:
            return get_type_hints(function, localns=unknown, include_extras=True)
        except NameError as error:
            unknown[str(error.name)] = Any


def _remedy(name: str, value: object, inner: object, kind: _Kind) -> str:
    """Suggests a correction or, failing that, gives an example."""
    if isinstance(inner, str):
        known = [each for part in kind.parts() if isinstance(part, _OneOf) for each in part.values]
        if match := near(inner, [each for each in known if isinstance(each, str)]):
            return f"; did you mean {match!r}?"
    for part in kind.parts():
        if isinstance(part, _OfClass) and (match := _as_object(inner, part.cls)):
            return f"; did you mean {match}?"
        if isinstance(part, _Elements) and part.element is not _ANYTHING:
            within = list(cast("Mapping[object, object]", inner).values()) if _is_mapping(inner) else [inner]
            if within and all(map(part.element.fits, within[:_MOST_LOOKED_AT])):
                shown = ", ".join([*map(_shown_name, within[:_METHODS]), *(["..."] if within[_METHODS:] else [])])
                return f"; did you mean [{shown}]?"
    if name == "tools" and (inner is not value or methods_of(inner)):
        return elsewhere(inner)
    if inner is not value:
        return ""
    return f"; for example {name}={_SUCH_AS[name]}" if name in _SUCH_AS else ""


def elsewhere(thing: object) -> str:
    """Suggests how to pass an object that is not a tool, as the end of an error."""
    if type(thing).__module__.startswith("corral."):
        return "; tools of Corral go into Corral(tools=[...])"
    others = "corral.tools_from(...) takes lists, and tools of other libraries"
    if methods := methods_of(thing):
        return f"; to make tools of its methods, pass [{', '.join(methods)}]; {others}"
    return f"; {others}"


def methods_of(thing: object) -> list[str]:
    """Lists the first public methods of an object of a user's class, as Python list elements."""
    kind = type(thing)
    if isinstance(thing, type) or kind.__module__ == "builtins":
        return []
    names = [name for name, each in vars(kind).items() if inspect.isfunction(each) and not name.startswith("_")]
    return [f"{kind.__name__.lower()}.{name}" for name in names[:_METHODS]]


def _as_object(value: object, cls: type) -> str | None:
    """Suggests the constructor call if a class or a dict was passed instead of an object."""
    if isinstance(value, type):
        return f"{value.__name__}()" if issubclass(value, cls) else None
    fields: Mapping[str, object] | None = getattr(cls, "model_fields", None)
    if isinstance(value, Mapping) and fields is not None:
        keys = [str(key) for key in cast("Mapping[object, object]", value)][:5]
        return f"{cls.__name__}({', '.join(f'{near(key, fields) or key}=...' for key in keys)})"
    return None


def _shown(value: object, kind: _Kind) -> str:
    """Formats a value for an error message. Strings may be secret: they are shown only where strings are the
    choices."""
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, str) and any(isinstance(part, _OneOf) for part in kind.parts()):
        return repr(value[:_NAME_CHARS])
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _shown_name(value: object) -> str:
    name = getattr(value, "__name__", None)
    return name if isinstance(name, str) else "..."


def checked_as(error: type[ConfigError]) -> Callable[[F], F]:
    """Returns a decorator that makes a function, or a class's constructor, raise `error` for wrong arguments.

    The error names the argument and the expected type, and suggests a correction.
    """

    def check(target: F) -> F:
        if isinstance(target, type):
            cls = cast("Any", target)
            cls.__init__ = _wrapped(cls.__init__, target.__name__, error)
            return cast("F", target)
        return cast("F", _wrapped(target, target.__qualname__, error))

    return check


checked = checked_as(ConfigError)


def _owner_of(function: Callable[..., Any], owner: str, arguments: tuple[object, ...]) -> str:
    """Names a method after its object's first public class, or that class's `_shown_as`."""
    if not arguments or "." not in owner:
        return owner
    first = arguments[0]
    kind = first if isinstance(first, type) else type(first)
    known = next(each for each in kind.__mro__ if not each.__name__.startswith("_"))
    return f"{getattr(known, '_shown_as', known.__name__)}.{function.__name__}"


def _wrapped(function: Callable[..., Any], owner: str, error: type[ConfigError]) -> Callable[..., Any]:
    parameters: _Parameters | None = None
    skipped = next(iter(inspect.signature(function).parameters), "") in ("self", "cls")

    def problem(arguments: tuple[object, ...], keywords: Mapping[str, object]) -> ConfigError | None:
        nonlocal parameters
        if parameters is None:
            parameters = _Parameters(function, _owner_of(function, owner, arguments) if skipped else owner, error)
        return parameters.problem(arguments[1:] if skipped else arguments, keywords)

    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def call_async(*arguments: Any, **keywords: Any) -> Any:
            if (wrong := problem(arguments, keywords)) is not None:
                raise wrong
            return await function(*arguments, **keywords)

        return call_async

    @wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        if (wrong := problem(arguments, keywords)) is not None:
            raise wrong
        return function(*arguments, **keywords)

    return call
