"""A tool: a function of the host that programs may call, with what is known and required of it."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from inspect import Parameter
from typing import Any, Generic, TypeAlias, TypedDict, cast, overload

from anyio import to_thread
from typing_extensions import ParamSpec, TypeVar, Unpack

from corral.errors import InvalidArguments, InvalidToolOutput, ToolDefinitionError
from corral.tools.docstrings import read_docstring
from corral.tools.names import identifier, namespace_identifier
from corral.tools.problems import SchemaMismatch, field_names
from corral.tools.rates import Rate, RateLimit, RateScope, parse_rates
from corral.tools.schema import InputSchema, OutputSchema, input_schema_of, output_schema_of
from corral.tools.signature import Arguments, read_parameters, read_result, underlying_function
from corral.types import ExecutionContext, JsonSchema, ToolName

__all__ = ["Approval", "ParsedInput", "Tool", "as_tool", "define_tool", "tool"]

P = ParamSpec("P", default=...)
R = TypeVar("R", default=Any, covariant=True)

Approval: TypeAlias = bool | Callable[[Any, ExecutionContext], bool | Awaitable[bool]]
"""Whether a call needs an approval; a function decides by the validated input and the context."""


@dataclass(slots=True)
class ParsedInput:
    """A validated input: a dict from parameter to value for functions, else what the input schema makes of it."""

    value: Any


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tool(Generic[P, R]):
    """A function together with its schemas and what calling it requires. Calling the tool calls the function.

    Made by `@tool` and `define_tool`. Scopes, rates, approvals and the timeout are held by the bridge's guards.

    Raises:
        ToolDefinitionError: no identifier can be made of the name, the namespace is reserved, or a setting is wrong.
    """

    name: str
    """As the host knows it; `ToolRegistry` says under which identifier programs do."""
    namespace: str | None = None
    description: str = ""
    scopes: frozenset[str] = frozenset()
    """Scopes that a caller must have, all of them."""
    any_scope: frozenset[str] = frozenset()
    """Scopes of which a caller must have one, unless empty."""
    rate_limit: RateLimit | None = None
    """How often each user may call it, `"30/minute"`; or for whom how often, `{"everyone": "500/minute"}`."""
    needs_approval: Approval = False
    read_only: bool = False
    idempotent: bool = False
    timeout_seconds: float | None = None
    input: InputSchema = field(repr=False)
    output: OutputSchema = field(repr=False)
    function: Callable[P, R] = field(repr=False)
    bind: Callable[[Any, ExecutionContext], Arguments] = field(repr=False)
    """From validated input and context to the function's arguments."""
    is_async: bool = field(init=False, repr=False)
    """Whether calling the function gives a coroutine; others run in a worker thread."""
    rates: Mapping[RateScope, Rate] = field(init=False, repr=False)
    """What `rate_limit` says."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_async", inspect.iscoroutinefunction(underlying_function(self.function)))
        identifier(self.name)
        if self.namespace is not None:
            namespace_identifier(self.namespace)
        timeout = self.timeout_seconds
        if timeout is not None and not (timeout > 0 and math.isfinite(timeout)):
            raise ToolDefinitionError(f"tool {self.name!r}: timeout_seconds must be positive, not {timeout}")
        try:
            object.__setattr__(self, "rates", parse_rates(self.rate_limit))
        except ValueError as error:
            raise ToolDefinitionError(f"tool {self.name!r}: rate_limit: {error}") from None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    @property
    def input_schema(self) -> JsonSchema | None:
        """JSON Schema of the input, or None if it takes anything."""
        return self.input.json_schema

    @property
    def output_schema(self) -> JsonSchema | None:
        """JSON Schema of the result as programs receive it, or None if nothing is known of it."""
        return self.output.json_schema

    @property
    def label(self) -> str:
        """The name for messages to a model: as it writes it, unless another tool has the same identifier."""
        namespace = None if self.namespace is None else namespace_identifier(self.namespace)
        return str(ToolName(namespace, identifier(self.name)))

    def parse_input(self, raw: object) -> ParsedInput:
        """Validates what a program sent.

        Raises:
            InvalidArguments: naming the tool and every problem with its path.
        """
        try:
            return ParsedInput(self.input.load(raw))
        except SchemaMismatch as mismatch:
            given = cast("dict[object, object]", raw) if isinstance(raw, dict) else {}
            absent = [name for name in field_names(self.input_schema) if name not in given]
            raise InvalidArguments(f'tool "{self.label}": {mismatch.public(absent)}') from mismatch

    async def execute(self, parsed: ParsedInput, context: ExecutionContext) -> object:
        """Runs the function, in a worker thread if it is not async; its exceptions pass through.

        A cancelled call of a function in a thread returns at once; the thread goes on to its end.
        """
        arguments, keywords = self.bind(parsed.value, context)
        function: Callable[..., Any] = self.function
        if self.is_async:
            return await function(*arguments, **keywords)
        # in a tuple, because trio refuses coroutines as results of a thread
        (result,) = await to_thread.run_sync(lambda: (function(*arguments, **keywords),), abandon_on_cancel=True)
        return await result if inspect.isawaitable(result) else result

    def dump_output(self, value: object) -> object:
        """Validates what the function returned, and turns it into plain data (see `corral.tools.schema`).

        Raises:
            InvalidToolOutput: naming the tool and the paths that are wrong, but no value; `__cause__` has details.
        """
        try:
            return self.output.dump(value)
        except SchemaMismatch as mismatch:
            raise InvalidToolOutput(f'tool "{self.label}" returned a wrong result: {mismatch.discreet()}') from mismatch
        except Exception as error:
            raise InvalidToolOutput(f'tool "{self.label}" returned a result that cannot be read as data') from error


# --- making tools -------------------------------------------------------------------------------------------


class ToolSettings(TypedDict, total=False):
    """What `@tool` and `define_tool` pass on to `Tool` as it is."""

    namespace: str | None
    scopes: Iterable[str]
    any_scope: Iterable[str]
    rate_limit: RateLimit | None
    needs_approval: Approval
    read_only: bool
    idempotent: bool
    timeout_seconds: float | None


FunctionP = ParamSpec("FunctionP")
FunctionR = TypeVar("FunctionR")


@overload
def tool(function: Callable[FunctionP, FunctionR], /) -> Tool[FunctionP, FunctionR]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    input_schema: object = None,
    output_schema: object = None,
    **settings: Unpack[ToolSettings],
) -> Callable[[Callable[FunctionP, FunctionR]], Tool[FunctionP, FunctionR]]: ...
def tool(function: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
    """Makes a tool of a function, a bound method, a partial or a callable object.

    Name, description and schemas come from the function, its docstring and its type hints, unless given. A parameter
    annotated `ExecutionContext` receives the caller's context and is hidden from programs, as are the keywords that
    a partial has bound. With an `input_schema` the function takes `(input, context)`, as with `define_tool`.

    Raises:
        ToolDefinitionError: the function cannot be declared as written.
    """
    if function is None:
        return functools.partial(_from_function, **settings)
    return _from_function(function, **settings)


def as_tool(source: Tool | Callable[..., Any]) -> Tool:
    """A tool as it is; a function as `@tool` makes it one."""
    return cast("Tool", source) if isinstance(source, Tool) else _from_function(source)


def define_tool(
    *,
    name: str,
    description: str = "",
    input_schema: object = None,
    output_schema: object = None,
    execute: Callable[FunctionP, FunctionR],
    **settings: Unpack[ToolSettings],
) -> Tool[FunctionP, FunctionR]:
    """Makes a tool whose schemas are known only at run time.

    A schema is a JSON Schema document, a pydantic model (or another type that pydantic knows), or None: anything.
    `execute(input, context)`, sync or async, receives the validated document or the model; it may take `input` alone.

    Raises:
        ToolDefinitionError: the name, a schema or a setting is wrong.
    """
    return Tool(
        name=name,
        description=description,
        input=input_schema_of(input_schema, owner=f"tool {name!r}: input_schema"),
        output=output_schema_of(output_schema, owner=f"tool {name!r}: output_schema"),
        function=execute,
        bind=_bind_input(execute, name),
        **_checked(settings, name),
    )


def _from_function(
    function: Callable[FunctionP, FunctionR],
    *,
    name: str | None = None,
    description: str | None = None,
    input_schema: object = None,
    output_schema: object = None,
    **settings: Unpack[ToolSettings],
) -> Tool[FunctionP, FunctionR]:
    name = name or _name_of(function)
    underlying = underlying_function(function)
    if inspect.isgeneratorfunction(underlying) or inspect.isasyncgenfunction(underlying):
        raise ToolDefinitionError(f"tool {name!r} is a generator; return a list")
    docstring = read_docstring(underlying.__doc__ or _class_docstring(function))
    if output_schema is None:
        output = read_result(function, name=name, description=docstring.returns)
    else:
        output = output_schema_of(output_schema, owner=f"tool {name!r}: output_schema")
    if input_schema is None:
        parameters = read_parameters(function, name=name, descriptions=docstring.parameters)
        input_, bind = parameters.input, parameters.bind
    else:
        input_ = input_schema_of(input_schema, owner=f"tool {name!r}: input_schema")
        bind = _bind_input(function, name)
    return Tool(
        name=name,
        description=docstring.description if description is None else description,
        input=input_,
        output=output,
        function=function,
        bind=bind,
        **_checked(settings, name),
    )


def _name_of(function: Callable[..., Any]) -> str:
    if not callable(function) or isinstance(function, type | Tool):
        raise ToolDefinitionError(
            "a tool is made of a function, a bound method or a callable object, not "
            f"{_named(cast('object', function))}; corral.tools_from(...) takes lists, and tools of other libraries"
        )
    underlying = underlying_function(function)
    name: str = type(function).__name__ if underlying.__name__ == "__call__" else underlying.__name__
    if name == "<lambda>":
        raise ToolDefinitionError("a lambda has no name; pass one: tool(name=...)(lambda ...)")
    return name


def _named(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"one of {type(value).__name__}"


def _class_docstring(function: Callable[..., Any]) -> str | None:
    """That of a callable object; the class of a function or a partial says nothing about it."""
    return None if inspect.isroutine(function) or isinstance(function, functools.partial) else function.__doc__


def _bind_input(function: Callable[..., Any], name: str) -> Callable[[Any, ExecutionContext], Arguments]:
    """Calls `function` as `(input, context)`, or `(input)` if it takes one argument."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return lambda value, context: ([value, context], {})
    if any(each.kind is Parameter.VAR_POSITIONAL for each in parameters):
        return lambda value, context: ([value, context], {})
    positional = [
        each for each in parameters if each.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    ]
    match len(positional):
        case 0:
            raise ToolDefinitionError(f"tool {name!r}: its function must take (input, context)")
        case 1:
            return lambda value, context: ([value], {})  # noqa: ARG005
        case _:
            return lambda value, context: ([value, context], {})


def _checked(settings: ToolSettings, name: str) -> dict[str, Any]:
    checked: dict[str, Any] = dict(settings)
    for key in ("scopes", "any_scope"):
        if isinstance(checked.get(key), str):
            raise ToolDefinitionError(f"tool {name!r}: {key} is a collection of strings, not one string")
        checked[key] = frozenset(checked.get(key, ()))
    return checked
