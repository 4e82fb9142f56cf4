"""Tool: a function of the host that programs can call, with its schemas and requirements."""

from __future__ import annotations

import functools
import inspect
import math
import re
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from pickle import PicklingError
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    NamedTuple,
    Self,
    TypeAlias,
    TypedDict,
    cast,
    get_args,
    overload,
)

from anyio import to_thread
from typing_extensions import ParamSpec, TypeVar, Unpack

from corral.arguments import checked_as, elsewhere
from corral.errors import InvalidArguments, InvalidToolOutput, ToolDefinitionError
from corral.tools.json_schema.document_schema import NotValidated, PendingValidation
from corral.tools.json_schema.plain_data import json_value, to_plain_data
from corral.tools.json_schema.problems import SchemaMismatch, cut, field_names
from corral.tools.names import identifier, namespace_identifier
from corral.tools.rates import Rate, RateLimit, RateScope, parse_rates
from corral.tools.schema import InputSchema, OutputSchema, TypeOutput, input_schema_of, output_schema_of, says_nothing
from corral.tools.signature import (
    Arguments,
    injected_places,
    read_parameters,
    read_result,
    underlying_function,
    without_partial,
)
from corral.tools.streams import Gathering, is_iterator, iterate
from corral.tools.tool_call import ToolCall
from corral.types import ExecutionContext, JsonSchema, Owner, ToolName

if TYPE_CHECKING:
    from docstring_parser import Docstring as ParsedDocstring

_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_TYPES = frozenset(
    """any array arr bool boolean bytearray bytes callable char class complex coroutine date datetime decimal dict
    dictionary double enum file float frozenset function generator int integer iterable iterator json list long map
    mapping none null number numeric object obj sequence set str string text timedelta tuple type union uuid void
    awaitable path""".split()
)
"""Lower-case words that name types in docstrings. Any other lower-case word names a value."""


class Docstring(NamedTuple):
    """The parts of a docstring that a model should see."""

    description: str = ""
    parameters: Mapping[str, str] = MappingProxyType({})
    returns: str | None = None


def read_docstring(text: str | None) -> Docstring:
    """Parses a docstring. Never raises: in an unknown style, the whole text is the description."""
    if not text:
        return Docstring()
    from docstring_parser import parse  # not imported with corral, because only the definition of tools needs it

    text = inspect.cleandoc(text)
    try:
        parsed = parse(text)
    except Exception:
        return Docstring(text)
    paragraphs = [part.strip() for part in (parsed.short_description, parsed.long_description) if part]
    return Docstring(
        description="\n\n".join(paragraphs),
        parameters={each.arg_name.lstrip("*"): each.description for each in parsed.params if each.description},
        returns=_returns(parsed),
    )


def _returns(parsed: ParsedDocstring) -> str | None:
    """Returns the texts about the result. Keeps names of results and members, but drops types."""
    lines: list[str] = []
    for each in parsed.many_returns:
        name, text = each.return_name or _member(each.type_name or ""), each.description or ""
        lines.append(f"{name}: {text}" if name and name != text else text)
    return "\n".join(filter(None, lines)) or None


def _member(text: str) -> str | None:
    """Returns the text in the position of a type, for members as in `names: the names of all users`."""
    return text if _NAME.fullmatch(text) and text not in _TYPES else None


_REMARK_CHARS = 300
_NAME_CHARS = 60

P = ParamSpec("P", default=...)
R = TypeVar("R", default=Any, covariant=True)

Approval: TypeAlias = bool | Callable[[Any, ExecutionContext], bool | Awaitable[bool]]
"""True if calls need approval. A function decides by the validated input and the context."""

OutputValidation: TypeAlias = Literal["warn", "strict", "off"]
"""Treatment of a result that does not match the output schema.

`warn` delivers it with a remark, `strict` withholds it, `off` does not validate.
"""


@dataclass(slots=True)
class ParsedInput:
    """Validated input: a dict from parameter to value for functions, else the value that the input schema returned."""

    value: Any


@checked_as(ToolDefinitionError)
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False, weakref_slot=True)
class Tool(Generic[P, R]):
    """Function with its schemas and requirements. Calling the tool calls the function.

    Created by `@tool` and `define_tool`. The guards enforce scopes, rates, approvals and the timeout.

    Raises:
        ToolDefinitionError: the name cannot become an identifier, the namespace is reserved, or a setting is invalid.
    """

    name: str
    """Name that the host uses. `ToolRegistry` has the identifier for programs."""
    namespace: str | None = None
    description: str = ""
    scopes: frozenset[str] = frozenset()
    """Scopes that a caller must have, all of them."""
    any_scope: frozenset[str] = frozenset()
    """Scopes of which a caller must have at least one, unless empty."""
    rate_limit: RateLimit | None = None
    """Calls allowed per user, `"30/minute"`; or by scope, `{"everyone": "500/minute"}`."""
    needs_approval: Approval = False
    read_only: bool = False
    idempotent: bool = False
    journal: bool = True
    """False if a ledger does not keep its output, so that it runs again whenever a durable execution continues."""
    sequential: bool = False
    """True if each of its calls must run without other calls of the same execution."""
    timeout_seconds: float | None = None
    validate_output: OutputValidation | bool = "warn"
    """True means `strict`, False means `off`."""
    must_finish: bool = False
    """True if a running call is awaited after its program has ended, up to the execution's wall clock."""
    stream: bool = False
    """True if programs get items one by one, as they are yielded; `output` is then the schema of one item."""
    undo: Callable[..., object] | None = None
    """Function of `(input, output, context)`, sync or async, by which `Corral.executions.rollback` undoes a call.

    `input` is the validated input, as in an `ApprovalRequest`, `output` the plain data that the program received. It
    can take a `ToolCall` like the tool's own function; its `idempotency_key` ends with `:undo`.
    """
    untrusted: bool | None = None
    """True if its results have text that others wrote, False if not. None means unknown, which a policy that
    follows data treats as True."""
    sends: tuple[str, ...] = ()
    """Parameters that say where something goes, such as `to` or `url`. A dot leads into an object: `message.to`."""
    changes: bool | None = None
    """True if calls have effects that a person should have asked for, such as deletions and payments."""
    known: tuple[str, ...] = ()
    """The host's own destinations: `@acme.com`, `https://acme.com`, or a whole value."""
    trusted_hints: bool = True
    """False if `read_only` is a claim of a server that is not trusted. A policy that follows data ignores it then."""
    input: InputSchema = field(repr=False)
    output: OutputSchema = field(repr=False)
    function: Callable[P, R] = field(repr=False)
    bind: Callable[[Any, ToolCall], Arguments] = field(repr=False)
    """Function that maps validated input and the call to the arguments."""
    resolve: Callable[[Any, ExecutionContext], Awaitable[Any]] | None = field(default=None, repr=False)
    """Function that maps validated input and context to the final arguments, which approvals show. For tools of other
    libraries, which validate again."""
    is_async: bool = field(init=False, repr=False)
    """True if calling the function returns a coroutine or an async generator. Other functions run in a worker
    thread."""
    rates: Mapping[RateScope, Rate] = field(init=False, repr=False)
    """The rates of `rate_limit`."""
    policy: str = field(default="", repr=False)
    """Conditions of a policy on its calls, in a few words, in a view of the tools for a caller."""
    _bind_undo: Callable[[Any, ToolCall], Arguments] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        function = underlying_function(self.function)
        is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        object.__setattr__(self, "is_async", is_async)
        identifier(self.name)
        validation, rates = check_settings(
            f"tool {self.name!r}",
            namespace=self.namespace,
            rate_limit=self.rate_limit,
            timeout_seconds=self.timeout_seconds,
            validate_output=self.validate_output,
        )
        for name in ("sends", "known"):
            if not isinstance(getattr(self, name), tuple):
                raise ToolDefinitionError(f"tool {self.name!r}: {name} is a collection of strings, not one string")
        if not self.journal and (not self.read_only or self.needs_approval is not False):
            raise ToolDefinitionError(
                f"tool {self.name!r}: journal=False lets it run again, so it needs read_only=True and no needs_approval"
            )
        object.__setattr__(self, "validate_output", validation)
        object.__setattr__(self, "rates", rates)
        if self.undo is not None:
            of_output = functools.partial(self.undo, None)
            takes = "its undo must take (input, output, context)"
            object.__setattr__(self, "_bind_undo", _bind_input(of_output, self.name, takes))

    def __repr__(self) -> str:
        return f"<Tool {self.label}({', '.join(field_names(self.input_schema))})>"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return _by_name(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the function itself, so other code of the host can keep using it."""
        return self.function(*args, **kwargs)

    @property
    def has_schemas(self) -> bool:
        """True if both schemas have been built. Some sources build them on first use."""
        return all(getattr(schema, "is_made", True) for schema in (self.input, self.output))

    @property
    def input_schema(self) -> JsonSchema | None:
        """JSON Schema of the input; None if it accepts anything."""
        return self.input.json_schema

    @property
    def returns_bytes(self) -> bool:
        """True if results have bytes where the output schema has `format: binary`, because it was made from a Python
        type."""
        return isinstance(self.output, TypeOutput)

    @property
    def output_schema(self) -> JsonSchema | None:
        """JSON Schema of the result, or of a stream's items, as programs receive it; None if it is unknown."""
        return self.output.json_schema

    @property
    def original_path(self) -> str:
        """Its own names, from which the name in programs is made."""
        return str(ToolName(self.namespace, self.name))

    @property
    def label(self) -> str:
        """Name for messages to a model: the identifier, unless another tool has the same one."""
        namespace = None if self.namespace is None else namespace_identifier(self.namespace)
        return str(ToolName(namespace, identifier(self.name)))

    @checked_as(ToolDefinitionError)
    def with_settings(self, **settings: Unpack[ToolSettings]) -> Tool[P, R]:
        """Returns a copy with these settings instead of its own. `scopes` are added to its own.

        Raises:
            ToolDefinitionError: a setting is invalid.
        """
        return replace(self, **_frozen({**settings, "scopes": self.scopes.union(settings.get("scopes", ()))}))

    def is_allowed_with(self, scopes: frozenset[str]) -> bool:
        """True if the caller has all `scopes`, and at least one of `any_scope`, if any."""
        return self.scopes <= scopes and (not self.any_scope or not self.any_scope.isdisjoint(scopes))

    async def parse_input(self, raw: object, context: ExecutionContext | None = None) -> ParsedInput:
        """Validates a program's input. If that needs a worker, waits for the caller's turn.

        Raises:
            InvalidArguments: the input is invalid. The message names the tool, and each problem with its path.
        """
        try:
            value = self.input.load(raw)
            return ParsedInput(await value.get(_owner(context)) if type(value) is PendingValidation else value)
        except SchemaMismatch as mismatch:
            raise self.refused(raw, mismatch) from mismatch

    def refused(self, raw: object, mismatch: SchemaMismatch) -> InvalidArguments:
        """Returns the error for the model about its input."""
        sent = cast("dict[object, object]", raw) if isinstance(raw, dict) else {}
        absent = [name for name in field_names(self.input_schema) if name not in sent]
        return InvalidArguments(f'tool "{self.label}": {mismatch.public(absent)}')

    async def execute(self, parsed: ParsedInput, call: ToolCall, *, most_bytes: float = math.inf) -> object:
        """Runs the function, in a worker thread if it is not async. Its exceptions propagate.

        Yielded items become a list, even for a tool that streams. If the call of a function in a thread is cancelled,
        it returns at once; the thread runs to its end or to its next yielded item.

        Raises:
            TooMuch: the function yields far more than `most_bytes`.
        """
        if self.stream:
            return await Gathering(most_bytes).receive(await self.open_stream(parsed, call))
        arguments, keywords = self.bind(parsed.value, call)
        function: Callable[..., Any] = self.function
        if self.is_async:
            returned: Any = function(*arguments, **keywords)
            result = cast("object", returned if isinstance(returned, AsyncGenerator) else await returned)
        else:
            gathering = Gathering(most_bytes)
            try:
                # in a tuple, because trio rejects a coroutine as the result of a thread
                (result,) = await to_thread.run_sync(
                    lambda: (gathering.read(function(*arguments, **keywords)),), abandon_on_cancel=True
                )
            finally:
                gathering.stop()
            if inspect.isawaitable(result):
                result = await result
        return await Gathering(most_bytes).receive(result) if is_iterator(result) else result

    async def open_stream(self, parsed: ParsedInput, call: ToolCall) -> AsyncIterator[object]:
        """Calls the function of a tool that streams. Its exceptions propagate. The caller closes the iterator.

        Raises:
            TypeError: the function returned a value that cannot be iterated.
        """
        arguments, keywords = self.bind(parsed.value, call)
        function: Callable[..., Any] = self.function
        if self.is_async:
            result: Any = function(*arguments, **keywords)
        else:
            (result,) = await to_thread.run_sync(lambda: (function(*arguments, **keywords),), abandon_on_cancel=True)
        return iterate(await result if inspect.isawaitable(result) else result)

    async def take_back(self, parsed: ParsedInput, output: object, call: ToolCall) -> None:
        """Calls `undo` for a call that had this output, in a worker thread if it is not async; its exceptions pass
        through."""
        assert self.undo is not None
        arguments, keywords = self._bind_undo(output, call)
        undo = functools.partial(self.undo, parsed.value, *arguments, **keywords)
        if inspect.iscoroutinefunction(underlying_function(self.undo)):
            returned = undo()
        else:
            (returned,) = await to_thread.run_sync(lambda: (undo(),), abandon_on_cancel=True)
        if inspect.isawaitable(returned):
            await returned

    async def dump_output(
        self, value: object, warn: Callable[[str], object] | None = None, context: ExecutionContext | None = None
    ) -> object:
        """Converts the function's result to plain data like `dump_item`; if the tool streams, converts each item."""
        if not self.stream:
            return await self.dump_item(value, warn, context)
        return [await self.dump_item(item, warn, context) for item in cast("list[object]", value)]

    async def dump_item(
        self, value: object, warn: Callable[[str], object] | None = None, context: ExecutionContext | None = None
    ) -> object:
        """Converts a result, or an item of a stream, to plain data (see `corral.tools.schema`), and validates it.

        `warn` is called if a result is delivered although it does not match the output schema. Without a schema, a text
        that is a JSON object or list is parsed.

        Raises:
            InvalidToolOutput: the result is invalid. The message names the tool and the paths, but no values;
                `__cause__` has details.
        """
        try:
            if hasattr(type(value), "__next__"):
                # an iterator can be read only once, but the value may be needed twice
                value = list(cast("Iterator[object]", value))
            data = to_plain_data(value) if self.validate_output == "off" else self.output.dump(value)
            if type(data) is PendingValidation:
                data = await data.get(_owner(context))
        except Exception as error:
            if self.validate_output == "strict":
                raise self._withheld(error) from error
            return await self._deliver(value, error, warn, context)
        if type(data) is str and says_nothing(self.output.json_schema):
            read = json_value(data)
            return cast("object", read) if isinstance(read, dict | list) else data
        return data

    async def _deliver(
        self,
        value: object,
        error: Exception,
        warn: Callable[[str], object] | None,
        context: ExecutionContext | None,
    ) -> object:
        """Returns the result to deliver even though the output schema raised this error."""
        try:
            data = to_plain_data(value)
            if type(data) is str and (read := json_value(data)) is not data:
                with suppress(SchemaMismatch):
                    parsed = self.output.dump(read)
                    return await parsed.get(_owner(context)) if type(parsed) is PendingValidation else parsed
                data = cast("object", read) if isinstance(read, dict | list) else data
        except Exception as unreadable:
            raise self._withheld(unreadable) from unreadable
        if warn is not None:
            problem = cut(error.discreet(), _REMARK_CHARS) if isinstance(error, SchemaMismatch) else "it is not valid"
            verb = "may have returned" if isinstance(error, NotValidated) else "returned"
            remark = f"{self.label} {verb} a value that does not match its output schema: {problem}"
            warn(f"{remark}; the value was delivered")
        return data

    def _withheld(self, error: Exception) -> InvalidToolOutput:
        problem = error.discreet() if isinstance(error, SchemaMismatch) else "it cannot be read as data"
        return InvalidToolOutput(f'tool "{self.label}" ran, but its result was withheld: {problem}')


def _owner(context: ExecutionContext | None) -> Owner | None:
    return None if context is None else context.owner


def check_settings(
    owner: str,
    *,
    namespace: str | None = None,
    rate_limit: RateLimit | None = None,
    timeout_seconds: float | None = None,
    validate_output: OutputValidation | bool = "warn",
    **_: object,
) -> tuple[OutputValidation, Mapping[RateScope, Rate]]:
    """Normalizes `validate_output` and `rate_limit` among a tool's settings.

    Raises:
        ToolDefinitionError: one of them is invalid.
    """
    if namespace is not None:
        namespace_identifier(namespace)
    if timeout_seconds is not None and not (timeout_seconds > 0 and math.isfinite(timeout_seconds)):
        raise ToolDefinitionError(f"{owner}: timeout_seconds must be positive, not {timeout_seconds}")
    validation = "strict" if validate_output is True else validate_output or "off"
    if validation not in get_args(OutputValidation):
        raise ToolDefinitionError(f'{owner}: validate_output={validation!r} must be "warn", "strict" or "off"')
    try:
        return validation, parse_rates(rate_limit)
    except ValueError as error:
        raise ToolDefinitionError(f"{owner}: rate_limit: {error}") from None


# --- pickling ------------------------------------------------------------------------------------------------


def _by_name(tool: Tool) -> tuple[Callable[..., Any], tuple[object, ...]]:
    """Returns a reference to a tool for `pickle`: its name in its function's module, and the settings that differ
    there.

    Raises:
        PicklingError: no name in that module refers to a tool with this function and these schemas.
    """
    function = underlying_function(tool.function)
    module = function.__module__
    for name, value in list(vars(sys.modules[module]).items()) if module in sys.modules else ():
        if isinstance(value, Tool) and _made_of(known := cast("Tool", value)) == _made_of(tool):
            own = {key: getattr(tool, key) for key in _SETTINGS if getattr(tool, key) != getattr(known, key)}
            return _named_tool, (module, name, own)
    raise PicklingError(
        f"{tool!r} cannot be sent to another process: {module} has no such tool; define it there at module level, "
        "with @tool or name = define_tool(...)"
    )


def _made_of(tool: Tool) -> tuple[object, ...]:
    return tool.function, tool.input, tool.output


def _named_tool(module: str, name: str, own: Mapping[str, Any]) -> Tool:
    tool: Tool = getattr(import_module(module), name)
    return replace(tool, **own) if own else tool


# --- making tools -------------------------------------------------------------------------------------------


class ToolSettings(TypedDict, total=False):
    """Settings that `@tool` and `define_tool` pass on to `Tool` unchanged."""

    namespace: str | None
    scopes: Iterable[str]
    any_scope: Iterable[str]
    rate_limit: RateLimit | None
    needs_approval: Approval
    read_only: bool
    idempotent: bool
    journal: bool
    sequential: bool
    timeout_seconds: float | None
    validate_output: OutputValidation | bool
    must_finish: bool
    undo: Callable[..., object] | None
    untrusted: bool | None
    sends: Iterable[str]
    changes: bool | None
    known: Iterable[str]
    trusted_hints: bool


_SETTINGS = ("name", "description", *ToolSettings.__annotations__)
"""Fields in which a `Tool` and a copy of it can differ."""
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
    stream: bool = False,
    **settings: Unpack[ToolSettings],
) -> Callable[[Callable[FunctionP, FunctionR]], Tool[FunctionP, FunctionR]]: ...
@checked_as(ToolDefinitionError)
def tool(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    input_schema: object = None,
    output_schema: object = None,
    stream: bool = False,
    **settings: Unpack[ToolSettings],
) -> Any:
    """Makes a tool from a function, a bound method, a partial or a callable object.

    Name, description and schemas come from the function, its docstring and its type hints, unless set here. A parameter
    annotated `ExecutionContext` receives the caller's context, and a parameter annotated `ToolCall` the call. Both are
    hidden from programs, as are the keywords that a partial has bound. With an `input_schema` the function takes
    `(input, context)`, as with `define_tool`.

    A generator's items are gathered into a list. With `stream=True` programs get them one by one, by `for await` in
    TypeScript and `async for` in Python; `output_schema` then describes one item.

    Raises:
        ToolDefinitionError: the function cannot be declared as written.
    """

    def make(function: Callable[..., Any]) -> Tool:
        bare = _callable_of(function)
        own = name or _name_of(bare)
        docstring = read_docstring(underlying_function(bare).__doc__ or _class_docstring(bare))
        if output_schema is None:
            output = read_result(function, name=own, description=docstring.returns, stream=stream)
        else:
            output = output_schema_of(output_schema, owner=f"tool {own!r}: output_schema")
        if input_schema is None:
            parameters = read_parameters(function, name=own, descriptions=docstring.parameters)
            input_, bind = parameters.input, parameters.bind
        else:
            input_ = input_schema_of(input_schema, owner=f"tool {own!r}: input_schema")
            bind = _bind_input(function, own)
        return Tool(
            name=own,
            description=docstring.description if description is None else description,
            input=input_,
            output=output,
            function=function,
            bind=bind,
            stream=stream,
            **_frozen(settings),
        )

    return make if function is None else make(function)


def as_tool(source: Tool | Callable[..., Any]) -> Tool:
    """Returns a tool unchanged. Makes a tool from a function, like `@tool`."""
    return cast("Tool", source) if isinstance(source, Tool) else tool()(source)


@checked_as(ToolDefinitionError)
def define_tool(
    *,
    name: str,
    description: str = "",
    input_schema: object = None,
    output_schema: object = None,
    execute: Callable[FunctionP, FunctionR],
    stream: bool = False,
    **settings: Unpack[ToolSettings],
) -> Tool[FunctionP, FunctionR]:
    """Makes a tool whose schemas are known only at run time.

    A schema is a JSON Schema document, a pydantic model (or another type that pydantic knows), or None for anything.
    `execute(input, context)`, sync or async, receives the validated document or the model. It can omit `context`, and
    have a parameter annotated `ToolCall`. With `stream=True` it yields items, and `output_schema` describes one item.

    Raises:
        ToolDefinitionError: the name, a schema or a setting is invalid.
    """
    return Tool(
        name=name,
        description=description,
        input=input_schema_of(input_schema, owner=f"tool {name!r}: input_schema"),
        output=output_schema_of(output_schema, owner=f"tool {name!r}: output_schema"),
        function=execute,
        bind=_bind_input(execute, name),
        stream=stream,
        **_frozen(settings),
    )


def _callable_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function from which to make a tool.

    Raises:
        ToolDefinitionError: the argument is not a function.
    """
    bare = without_partial(function)
    if isinstance(bare, str):
        raise ToolDefinitionError(f"a tool is made of a function; did you mean tool(name={bare[:_NAME_CHARS]!r})?")
    if isinstance(bare, classmethod):
        raise ToolDefinitionError("pass a class method by its class: tool(Class.method)")
    if not callable(bare) or isinstance(bare, type | Tool):
        raise ToolDefinitionError(
            "a tool is made of a function, a bound method or a callable object, not "
            f"{_named(cast('object', bare))}{elsewhere(cast('object', bare))}"
        )
    return bare


def _name_of(bare: Callable[..., Any]) -> str:
    underlying = underlying_function(bare)
    name: str = type(bare).__name__ if underlying.__name__ == "__call__" else underlying.__name__
    if name == "<lambda>":
        raise ToolDefinitionError("a lambda has no name; pass one: tool(name=...)(lambda ...)")
    return name


def _named(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"one of {type(value).__name__}"


def _class_docstring(bare: Callable[..., Any]) -> str | None:
    """Returns the docstring of a callable object's class; None for a function, whose class says nothing about it."""
    return None if inspect.isroutine(bare) else bare.__doc__


def _bind_input(function: Callable[..., Any], name: str, *takes: str) -> Callable[[Any, ToolCall], Arguments]:
    """Binds `(input, context)` and the `ToolCall` to the parameters of `function` that take them."""
    context, call = injected_places(function, name, *takes)
    if call is None:
        if context is None:
            return lambda value, call: ([value], {})  # noqa: ARG005
        if context == 1:
            return lambda value, call: ([value, call.context], {})

    def bind(value: Any, served: ToolCall) -> Arguments:
        arguments: list[object] = [value]
        keywords: dict[str, object] = {}
        for place, injected in ((context, served.context), (call, served.attach())):
            if place == 1:
                arguments.append(injected)
            elif isinstance(place, str):
                keywords[place] = injected
        return arguments, keywords

    return bind


def _frozen(settings: ToolSettings) -> dict[str, Any]:
    scopes = {key: frozenset[str](settings.get(key, ())) for key in ("scopes", "any_scope") if key in settings}
    labels = {key: tuple[str, ...](settings.get(key, ())) for key in ("sends", "known") if key in settings}
    return {**settings, **scopes, **labels}
