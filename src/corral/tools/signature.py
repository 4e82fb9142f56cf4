"""Reads the parameters of a Python function: the schema of its arguments, and how to pass them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from dataclasses import dataclass
from inspect import Parameter
from types import UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo

from corral.errors import ToolDefinitionError
from corral.tools.schema import ANYTHING, ArgumentsInput, OutputSchema, TypeOutput, json_schema_of
from corral.tools.tool_call import ToolCall
from corral.types import ExecutionContext

Arguments = tuple[list[object], dict[str, object]]
"""Positional and keyword arguments of one call."""
Place = Literal[1] | str | None
"""Way to pass an argument: as the second, or by this name; None if it is not passed."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters of a function, and how to pass them."""

    input: ArgumentsInput
    positional: tuple[str, ...]
    """Parameters that can only be passed by position, in order."""
    context: str | None
    """Name of the parameter that receives the ExecutionContext."""
    call: str | None
    """Name of the parameter that receives the ToolCall."""

    def bind(self, values: dict[str, object], call: ToolCall) -> Arguments:
        """Returns the arguments for one call. `values` is the result of `input.load`."""
        keywords = dict(values)
        if self.context is not None:
            keywords[self.context] = call.context
        if self.call is not None:
            keywords[self.call] = call.attach()
        return [keywords.pop(name) for name in self.positional], keywords


def underlying_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function that has the annotations and the docstring, also for a partial or a callable object."""
    function = without_partial(function)
    return function if inspect.isroutine(function) else type(function).__call__


def without_partial(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function inside any partials. Returns anything else unchanged."""
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    return function


def _bound_keywords(function: Callable[..., Any]) -> Mapping[str, object]:
    return cast("functools.partial[Any]", function).keywords if isinstance(function, functools.partial) else {}


def read_parameters(function: Callable[..., Any], *, name: str, descriptions: Mapping[str, str]) -> Parameters:
    """Reads the parameters of a function; `name` is the tool's name, for errors.

    Raises:
        ToolDefinitionError: a parameter has no schema.
    """
    try:
        parameters = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError) as error:
        raise ToolDefinitionError(f"tool {name!r}: its parameters are unknown; pass an input_schema") from error
    bound = _bound_keywords(function)
    reserved = {*bound, *(each.name for each in parameters)}
    parameters = [each for each in parameters if each.name not in bound]
    if parameters and parameters[0].name == "self" and not inspect.ismethod(function):
        raise ToolDefinitionError(f"tool {name!r} is a method; bind it to an instance: tool(instance.{name})")
    types = _Types(underlying_function(function), name)
    context = _injected_parameter(types, parameters, ExecutionContext)
    call = _injected_parameter(types, parameters, ToolCall)
    shown = [each for each in parameters if each.name not in (context, call)]
    return Parameters(
        input=_arguments(types, shown, reserved, descriptions),
        positional=tuple(each.name for each in parameters if each.kind is Parameter.POSITIONAL_ONLY),
        context=context,
        call=call,
    )


def _injected_parameter(types: _Types, parameters: list[Parameter], kind: type) -> str | None:
    names = [each.name for each in parameters if _is_hint_of(types.hints.get(each.name), kind)]
    if len(names) > 1:
        doubled = " and ".join(names)
        raise ToolDefinitionError(f"tool {types.tool!r}: {doubled} both take the {kind.__name__}; leave one out")
    return names[0] if names else None


def injected_places(
    function: Callable[..., Any], name: str, takes: str = "its function must take (input, context)"
) -> tuple[Place, Place]:
    """Returns the parameters by which a function of one input receives the context and the ToolCall.

    The context goes to the parameter that is annotated `ExecutionContext` or named `context`, or else to the second one
    if that is required. The call goes to the parameter that is annotated `ToolCall`.

    Raises:
        ToolDefinitionError: the function takes no input, or requires further parameters.
    """
    try:
        parameters = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        return 1, None
    ordered = [each for each in parameters if each.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
    takes_all = any(each.kind is Parameter.VAR_POSITIONAL for each in parameters)
    if not ordered and not takes_all:
        raise ToolDefinitionError(f"tool {name!r}: {takes}")
    rest = [each for each in parameters[1:] if each.kind is not Parameter.VAR_KEYWORD]
    required = [each for each in rest if each.default is Parameter.empty and each.kind is not Parameter.VAR_POSITIONAL]
    second = ordered[1] if len(ordered) > 1 else None
    call = next((each for each in rest if _says(function, each, ToolCall)), None)
    context = next((each for each in rest if each.name == "context" or _says(function, each, ExecutionContext)), None)
    if context is None and second in required and second is not call:
        context = second
    if more := [each.name for each in required if each not in (context, call)]:
        raise ToolDefinitionError(f"tool {name!r}: {takes}, and nothing for {more[0]!r}")
    if context is None and takes_all and second is None:
        return 1, _place(call, second)
    return _place(context, second), _place(call, second)


def _place(parameter: Parameter | None, second: Parameter | None) -> Place:
    return None if parameter is None else 1 if parameter is second else parameter.name


def _says(function: Callable[..., Any], parameter: Parameter, kind: type) -> bool:
    try:
        hint = get_type_hints(underlying_function(function), include_extras=True).get(parameter.name)
    except (NameError, TypeError, SyntaxError):  # other annotations may be unreadable
        hint = parameter.annotation
    return _is_hint_of(hint, kind) or (isinstance(hint, str) and hint.endswith(kind.__name__))


def read_result(
    function: Callable[..., Any], *, name: str, description: str | None, stream: bool = False
) -> OutputSchema:
    """Returns the schema of a function's annotated result, or of one item of its stream. Without an annotation, it
    accepts anything.

    Raises:
        ToolDefinitionError: the type has no schema, or a stream is annotated as something else.
    """
    underlying = underlying_function(function)
    types = _Types(underlying, name)
    if stream and "return" not in types.hints:
        return ANYTHING
    if "return" not in types.hints and not is_generator(underlying):
        return ANYTHING
    hint = types.hints.get("return", Iterator)
    if stream and (get_origin(hint) or hint) not in _ITERATORS:
        raise ToolDefinitionError(f"tool {name!r}: annotate a stream with the type it yields: -> AsyncIterator[...]")
    hint = _item(hint) if stream else list[_item(hint)] if (get_origin(hint) or hint) in _ITERATORS else hint
    try:
        output = TypeOutput(types.adapter(hint))
    except _NO_SCHEMA as error:
        raise types.without_schema("an item of the stream" if stream else "the result", hint, error) from error
    if description:
        output.json_schema.setdefault("description", description)
    return output


# --- types --------------------------------------------------------------------------------------------------

_NO_SCHEMA = (PydanticUserError, TypeError, NameError)
"""Errors that pydantic raises for a type that it cannot validate or describe."""


class _Types:
    """Type hints of the function of one tool."""

    def __init__(self, function: Callable[..., Any], tool: str) -> None:
        self.tool = tool
        self.local_names = _local_names(function)
        self.hints: dict[str, Any] = {}
        try:
            self.hints = get_type_hints(function, localns=self.local_names or None, include_extras=True)
        except NameError as error:
            raise ToolDefinitionError(
                f"tool {tool!r}: its annotations use {error.name!r}, which is not defined when the tool is; "
                "define or import it before, and not under TYPE_CHECKING"
            ) from error
        except (TypeError, SyntaxError) as error:
            raise ToolDefinitionError(f"tool {tool!r}: its annotations cannot be read: {error}") from error

    def adapter(self, hint: Any) -> TypeAdapter[Any]:
        """Returns the adapter for a type. Raises the errors in `_NO_SCHEMA`."""
        adapter = TypeAdapter[Any](hint)
        adapter.rebuild(_types_namespace=self.local_names)
        return adapter

    def require_schema(self, place: str, hint: Any) -> None:
        try:
            json_schema_of(self.adapter(hint), "validation")
        except _NO_SCHEMA as error:
            raise self.without_schema(place, hint, error) from error

    def without_schema(self, place: str, hint: Any, reason: Exception) -> ToolDefinitionError:
        shown = getattr(hint, "__qualname__", None) or str(hint)
        first_line = str(reason).partition("\n")[0]
        return ToolDefinitionError(
            f"tool {self.tool!r}: {place} is of type {shown[:200]}, which has no JSON Schema; use a pydantic model, "
            "a dataclass, a TypedDict or a built-in type, or define __get_pydantic_core_schema__ on it "
            f"({first_line[:200]})"
        )


def is_generator(function: Callable[..., Any]) -> bool:
    """True if the function yields."""
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


_ITERATORS = frozenset({AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterable, Iterator})


def _item(hint: Any) -> Any:
    return get_args(hint)[0] if get_args(hint) else Any


def _local_names(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns local names of the enclosing function if it is still running, because annotations can refer to them."""
    around, inside, _ = getattr(function, "__qualname__", "").rpartition(".<locals>.")
    frame = inspect.currentframe() if inside else None
    while frame is not None:
        if frame.f_code.co_qualname == around:
            return dict(frame.f_locals)
        frame = frame.f_back
    return {}


def _is_hint_of(hint: object, kind: type) -> bool:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, UnionType):
        return all(each is type(None) or _is_hint_of(each, kind) for each in get_args(hint))
    return isinstance(hint, type) and issubclass(hint, kind)


# --- arguments ----------------------------------------------------------------------------------------------


def _arguments(
    types: _Types, parameters: list[Parameter], reserved: Collection[str], descriptions: Mapping[str, str]
) -> ArgumentsInput:
    base: type[BaseModel] | None = None
    fields: dict[str, Any] = {}
    names: dict[str, str] = {}
    for number, parameter in enumerate(parameters):
        hint = types.hints.get(parameter.name, Any)
        if parameter.kind is Parameter.VAR_POSITIONAL:
            raise ToolDefinitionError(f"tool {types.tool!r}: *{parameter.name} cannot be passed by name; take a list")
        if parameter.kind is Parameter.VAR_KEYWORD:
            types.require_schema(f"**{parameter.name}", hint)
            base = _further_arguments(hint)
        else:
            names[f"p{number}"] = parameter.name
            fields[f"p{number}"] = _field(parameter, hint, descriptions.get(parameter.name))
    try:
        config = ConfigDict(extra="forbid") if base is None else None
        model = create_model(types.tool, __base__=base, __config__=config, **fields)
        model.model_rebuild(_types_namespace=types.local_names)
        return ArgumentsInput(model, names, reserved)
    except _NO_SCHEMA as error:
        for parameter in parameters:
            types.require_schema(f"parameter {parameter.name!r}", types.hints.get(parameter.name, Any))
        raise ToolDefinitionError(
            f"tool {types.tool!r}: its parameters have no schema; pass an input_schema: {error}"
        ) from error


def _further_arguments(hint: Any) -> type[BaseModel]:
    body = {
        "__module__": __name__,
        "__annotations__": {"__pydantic_extra__": dict[str, hint]},
        "model_config": ConfigDict(extra="allow"),
    }
    return type("FurtherArguments", (BaseModel,), body)


def _field(parameter: Parameter, hint: Any, description: str | None) -> tuple[Any, Any]:
    """Returns a field with a generated name. Its alias is the parameter's name, unless the author set another."""
    settings: dict[str, Any] = {}
    if isinstance(parameter.default, FieldInfo):
        hint = Annotated[hint, parameter.default]
    elif parameter.default is not Parameter.empty:
        settings["default"] = parameter.default
    declared = FieldInfo.from_annotation(hint)
    if declared.alias is None and declared.validation_alias is None:
        settings["alias"] = parameter.name
    if declared.description is None and description:
        settings["description"] = description
    return hint, Field(**settings)
