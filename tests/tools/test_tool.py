from __future__ import annotations

import contextvars
import functools
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from types import MappingProxyType
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar
from uuid import UUID

import anyio
import pytest
from pydantic import BaseModel, ConfigDict, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypedDict

from corral import ToolCall
from corral.errors import InvalidArguments, InvalidToolOutput, ToolDefinitionError
from corral.tools import Tool, as_tool, define_tool, tool
from corral.types import ExecutionContext

CONTEXT = ExecutionContext(user_id="ada")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


def call(called: Tool, raw: object) -> object:
    """The whole way of a call: validate, run, validate."""

    async def run() -> object:
        return await called.dump_output(await called.execute(await called.parse_input(raw), ToolCall(CONTEXT)))

    return anyio.run(run)


def problems(called: Tool, raw: object) -> str:
    with pytest.raises(InvalidArguments) as raised:
        anyio.run(called.parse_input, raw)
    return str(raised.value)


def refusal(called: Tool, value: object) -> str:
    with pytest.raises(InvalidToolOutput) as raised:
        anyio.run(replace(called, validate_output="strict").dump_output, value)
    return str(raised.value)


@tool
def add(a: int, b: int = 2) -> int:
    """Adds numbers.

    For free.

    Args:
        a: The first.
        b: The second.

    Returns:
        The sum.
    """
    return a + b


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Node(BaseModel):
    value: int
    children: list[Node] = Field(default_factory=list["Node"], alias="kids")


@dataclass
class Named:
    name: str
    day: date


class TestDefinition:
    def test_schemas_and_texts_come_from_the_function(self) -> None:
        assert add.name == "add"
        assert add.description == "Adds numbers.\n\nFor free."
        assert add.input_schema == {
            "type": "object",
            "properties": {
                "a": {"type": "integer", "description": "The first."},
                "b": {"type": "integer", "description": "The second.", "default": 2},
            },
            "required": ["a"],
            "additionalProperties": False,
        }
        assert add.output_schema == {"type": "integer", "description": "The sum."}

    def test_a_tool_is_callable_as_the_function_it_was(self) -> None:
        assert add(1, b=4) == 5

    def test_settings_are_carried(self) -> None:
        @tool(
            name="fetch-url",
            description="Fetches.",
            namespace="web",
            scopes=["network:read"],
            any_scope={"a", "b"},
            rate_limit="30/minute",
            needs_approval=True,
            read_only=True,
            idempotent=True,
            timeout_seconds=20,
        )
        async def fetch(url: str) -> str:
            """Not shown."""
            return url

        assert (fetch.name, fetch.namespace, fetch.description) == ("fetch-url", "web", "Fetches.")
        assert (fetch.scopes, fetch.any_scope) == (frozenset({"network:read"}), frozenset({"a", "b"}))
        assert (fetch.rate_limit, fetch.needs_approval, fetch.timeout_seconds) == ("30/minute", True, 20)
        assert (fetch.read_only, fetch.idempotent) == (True, True)
        assert call(fetch, {"url": "x"}) == "x"

    def test_a_description_in_a_field_wins_over_the_docstring(self) -> None:
        @tool
        def f(a: Annotated[int, Field(description="from the field", gt=3)]) -> None:
            """F.

            :param a: from the docstring
            """

        assert f.input_schema is not None
        assert f.input_schema["properties"]["a"] == {
            "type": "integer",
            "exclusiveMinimum": 3,
            "description": "from the field",
        }

    def test_parameters_called_like_members_of_a_model_are_just_parameters(self) -> None:
        @tool
        def f(schema: int, json: str, copy: bool, model_config: str, _private: int, model_fields: int = 1) -> list[Any]:
            return [schema, json, copy, model_config, _private, model_fields]

        raw = {"schema": 1, "json": "j", "copy": True, "model_config": "c", "_private": 2}
        assert call(f, raw) == [1, "j", True, "c", 2, 1]

    def test_a_parameter_that_is_a_model_stays_under_its_name(self) -> None:
        @tool
        def value_of(node: Node) -> int:
            return node.value

        assert call(value_of, {"node": {"value": 3, "kids": [{"value": 4}]}}) == 3
        assert problems(value_of, {"node": {"value": 3, "kids": [{"value": "x"}]}}) == (
            'tool "value_of": node.kids[0].value: expected integer, got string "x"'
        )

    def test_locally_defined_types_are_found(self) -> None:
        class Local(BaseModel):
            a: int

        class Pair(TypedDict):
            left: Local
            right: Local

        @tool
        def f(pair: Pair) -> Local:
            return pair["left"]

        assert call(f, {"pair": {"left": {"a": 1}, "right": {"a": 2}}}) == {"a": 1}

    def test_aliases_are_what_programs_write(self) -> None:
        @tool
        def f(user_id: Annotated[int, Field(alias="userId")], **rest: int) -> dict[str, int]:
            return {"user_id": user_id, **rest}

        assert call(f, {"userId": 1, "x": 2}) == {"user_id": 1, "x": 2}
        assert "user_id: unexpected field" in problems(f, {"userId": 1, "user_id": 2})

    def test_further_keywords_are_typed(self) -> None:
        @tool
        def f(a: int, /, **rest: float) -> dict[str, float]:
            return {"a": a, **rest}

        assert f.input_schema is not None
        assert f.input_schema["additionalProperties"] == {"type": "number"}
        assert call(f, {"a": 1, "b": 2.5}) == {"a": 1, "b": 2.5}
        assert problems(f, {"a": 1, "b": "x"}) == 'tool "f": b: expected number, got string "x"'

    def test_positional_only_and_keyword_only_parameters_are_passed_as_they_must_be(self) -> None:
        @tool
        def f(a: int, b: int = 2, /, c: int = 3, *, d: int) -> list[int]:
            return [a, b, c, d]

        assert call(f, {"a": 1, "d": 4}) == [1, 2, 3, 4]

    def test_bound_methods_partials_and_callable_objects_are_tools(self) -> None:
        class Account:
            """An account."""

            def __init__(self, balance: int) -> None:
                self.balance = balance

            async def pay(self, amount: int) -> int:
                """Pays."""
                return self.balance - amount

            def __call__(self, amount: int) -> int:
                return self.balance + amount

        def multiply(a: int, b: int, key: str) -> int:
            """Multiplies."""
            return a * b + len(key)

        pay, account = tool(Account(10).pay), as_tool(Account(10))
        double = tool(functools.partial(multiply, 2, key="secret"))
        assert (pay.name, pay.description, call(pay, {"amount": 3})) == ("pay", "Pays.", 7)
        assert (account.name, account.description, call(account, {"amount": 3})) == ("Account", "An account.", 13)
        assert (double.name, double.description, call(double, {"b": 4})) == ("multiply", "Multiplies.", 14)
        assert "secret" not in str(double.input_schema)
        assert "key: unexpected field" in problems(double, {"b": 4, "key": "mine"})

    def test_a_sentinel_default_reaches_the_function_itself(self) -> None:
        sentinel = object()

        @tool
        def f(a: Any = sentinel) -> bool:
            return a is sentinel

        assert call(f, {}) is True

    @pytest.mark.parametrize(
        ("define", "message"),
        [
            (lambda: tool(_star), r"\*numbers cannot be passed by name"),
            (lambda: tool(_opaque_parameter), "parameter 'opaque' is of type Opaque, which has no JSON Schema"),
            (lambda: tool(_opaque_keywords), r"\*\*opaque is of type Opaque"),
            (lambda: tool(_opaque_result), "the result is of type Opaque"),
            (lambda: tool(_callback), "parameter 'then' is of type Callable"),
            (lambda: tool(_undefined), "'Undefined', which is not defined"),
            (lambda: tool(_OfClass.__dict__["of_class"]), r"by its class: tool\(Class.method\)"),
            (lambda: tool(functools.partial(Node)), "not the class"),
            (lambda: tool(_two_contexts), "first and second both take the ExecutionContext"),
            (lambda: tool(Node.model_dump), "is a method; bind it to an instance"),
            (lambda: tool(Node), "not the class"),
            (lambda: tool(lambda: None), "a lambda has no name"),
            (lambda: as_tool(3), "not one of int"),  # pyright: ignore[reportArgumentType]
            (lambda: as_tool(None), "not one of NoneType"),  # pyright: ignore[reportArgumentType]
            (lambda: tool(scopes="network:read")(_nothing), "scopes takes a list of str"),
            (lambda: define_tool(name="x", any_scope="a", execute=_nothing), "any_scope takes a list of str"),
            (lambda: define_tool(name="x", timeout_seconds=0, execute=_nothing), "timeout_seconds must be positive"),
            (lambda: define_tool(name="", execute=_nothing), "identifier"),
            (lambda: define_tool(name="x", execute=lambda: 1), r"must take \(input, context\)"),
            (lambda: define_tool(name="x", input_schema=Opaque, execute=_nothing), "input_schema is a type without"),
        ],
    )
    def test_what_cannot_be_declared_is_an_error_that_says_why(
        self, define: Callable[[], object], message: str
    ) -> None:
        with pytest.raises(ToolDefinitionError, match=message):
            define()


class Opaque:
    pass


def _nothing(value: Any) -> None: ...
def _star(*numbers: int) -> int: ...
def _opaque_parameter(a: int, opaque: Opaque) -> int: ...
def _opaque_keywords(**opaque: Opaque) -> int: ...
def _opaque_result() -> Opaque: ...
def _callback(then: Callable[[int], int]) -> int: ...
def _undefined(a: int) -> int: ...
def _two_contexts(first: ExecutionContext, second: ExecutionContext) -> int: ...


class _OfClass:
    @classmethod
    def of_class(cls, a: int) -> int: ...


_undefined.__annotations__["a"] = "Undefined"


class TestContext:
    def test_it_is_injected_and_hidden(self) -> None:
        @tool
        async def who(context: ExecutionContext, greeting: str = "hi") -> str:
            return f"{greeting} {context.user_id}"

        assert who.input_schema is not None
        assert list(who.input_schema["properties"]) == ["greeting"]
        assert call(who, {}) == "hi ada"
        assert "context: unexpected field" in problems(who, {"context": {"user_id": "mallory"}})

    def test_it_may_be_optional_annotated_or_positional(self) -> None:
        @tool
        def optional(context: ExecutionContext | None = None) -> str:
            return context.user_id if context else "nobody"

        @tool
        def annotated(context: Annotated[ExecutionContext, "for whom"], /) -> str:
            return context.user_id

        assert call(optional, {}) == call(annotated, {}) == "ada"

    def test_it_cannot_be_forged_by_way_of_further_keywords(self) -> None:
        @tool
        def f(*, context: ExecutionContext, **rest: Any) -> str:
            return context.user_id

        assert "context: unexpected field" in problems(f, {"context": {"user_id": "mallory"}})

    def test_what_a_partial_has_bound_cannot_be_overridden_by_way_of_further_keywords(self) -> None:
        def f(*, key: str, **rest: str) -> list[str]:
            return [key, rest["extra"]]

        bound = tool(functools.partial(f, key="mine", extra="fixed"))
        assert call(bound, {}) == ["mine", "fixed"]
        assert "key: unexpected field" in problems(bound, {"key": "yours"})
        assert "extra: unexpected field" in problems(bound, {"extra": "yours"})


class TestInput:
    def test_every_problem_is_named_with_its_path(self) -> None:
        assert problems(add, {"a": "wrong", "bb": 2}) == (
            'tool "add": 2 problems: a: expected integer, got string "wrong"; bb: unexpected field; did you mean b?'
        )
        assert problems(add, {}) == 'tool "add": a: field required'

    @pytest.mark.parametrize(
        ("raw", "got"), [(None, "null"), ([1, 2], "array"), (1, "number 1"), (True, "boolean true")]
    )
    def test_an_input_that_is_no_object_is_refused(self, raw: object, got: str) -> None:
        assert problems(add, raw) == f'tool "add": expected object, got {got}'

    def test_fields_that_a_dataclass_does_not_have_are_told_as_those_of_a_model(self) -> None:
        @pydantic_dataclass(config=ConfigDict(extra="forbid"))
        class Box:
            label: str

        @tool
        def f(box: Box) -> None: ...

        assert problems(f, {"box": {"label": "a", "seat": 1}}) == 'tool "f": box.seat: unexpected field'

    def test_a_tool_goes_by_the_name_that_the_model_writes(self) -> None:
        renamed = tool(name="add-up", namespace="my math")(add.function)
        assert problems(renamed, {}) == 'tool "my_math.add_up": a: field required'

    def test_values_of_many_types_arrive_as_what_the_function_takes(self) -> None:
        class Point(NamedTuple):
            x: int
            y: int

        @dataclass
        class Box:
            corner: Point
            label: str = "box"

        @tool
        def f(
            color: Color,
            when: datetime,
            price: Decimal,
            key: UUID,
            data: bytes,
            pair: tuple[int, str],
            numbers: set[int],
            mode: Literal["a", "b"],
            box: Box,
        ) -> list[Any]:
            assert isinstance(box.corner, Point)
            return [color, when, price, key, data, pair, numbers, mode, box]

        raw: dict[str, Any] = {
            "color": "red",
            "when": "2026-01-02T03:04:05Z",
            "price": "1.50",
            "key": "12345678-1234-5678-1234-567812345678",
            "data": b"\xff",
            "pair": [1, "x"],
            "numbers": [1, 1, 2],
            "mode": "b",
            "box": {"corner": [1, 2]},
        }
        assert call(f, raw) == [
            Color.RED,
            datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            Decimal("1.50"),
            UUID(raw["key"]),
            b"\xff",
            (1, "x"),
            {1, 2},
            "b",
            {"corner": (1, 2), "label": "box"},
        ]
        assert problems(f, raw | {"color": "pink", "when": "soon", "pair": [1]}) == (
            "tool \"f\": 3 problems: color: expected 'red' or 'blue', got string \"pink\"; "
            'when: expected date and time, got string "soon"; pair[1]: field required'
        )

    def test_the_variants_of_a_union_are_one_problem(self) -> None:
        @tool
        def f(a: int | list[int] | None) -> None: ...

        assert problems(f, {"a": "x"}) == 'tool "f": a: expected integer or array, got string "x"'
        assert problems(f, {"a": [1, "x"]}) == 'tool "f": a[1]: expected integer, got string "x"'

    def test_long_values_keys_and_lists_of_problems_are_cut(self) -> None:
        @tool
        def f(numbers: list[int], text: int) -> None: ...

        told = problems(f, {"numbers": ["x"] * 1000, "text": "y" * 100_000, "k" * 100_000: 1})
        assert told.startswith('tool "f": 1002 problems: numbers[0]: expected integer, got string "x"; ')
        assert told.endswith("; and 982 more")
        assert len(told) < 2000

    def test_a_hostile_value_makes_a_text_that_can_be_sent(self) -> None:
        deep: dict[str, object] = {"value": 1}
        for _ in range(10_000):
            deep = {"value": 1, "kids": [deep]}

        @tool
        def f(node: Node) -> None: ...

        assert "nested too deeply" in problems(f, {"node": deep})
        assert problems(f, {"node": "\ud800"}).encode()
        assert problems(f, {"node": {"value": 1, "kids": 10**10_000}}).endswith("expected array, got a huge number")

    def test_a_validator_of_the_author_speaks_to_the_model(self) -> None:
        class Even(BaseModel):
            n: int

            def model_post_init(self, context: Any) -> None:
                if self.n % 2:
                    raise ValueError("n is odd")

        @tool
        def f(even: Even) -> Even:
            return even

        assert "n is odd" in problems(f, {"even": {"n": 1}})
        assert refusal(f, {"n": 1}) == 'tool "f" ran, but its result was withheld: is not valid'


class TestOutput:
    def test_models_are_dumped_by_alias_and_keep_python_values(self) -> None:
        class Report(BaseModel):
            created: datetime = Field(alias="createdAt")
            data: bytes
            ratio: float

        @tool
        def report() -> Report: ...

        when = datetime(2026, 1, 1, tzinfo=UTC)
        assert report.output_schema is not None
        assert set(report.output_schema["properties"]) == {"createdAt", "data", "ratio"}
        for value in (Report(createdAt=when, data=b"\xff", ratio=1), {"created": when, "data": b"\xff", "ratio": 1}):
            assert anyio.run(report.dump_output, value) == {"createdAt": when, "data": b"\xff", "ratio": 1.0}
        assert (
            str(anyio.run(report.dump_output, {"created": when, "data": b"", "ratio": float("nan")})).count("nan") == 1
        )

    def test_a_wrong_result_names_the_path_and_no_value(self) -> None:
        @tool
        def f() -> dict[str, list[int]]: ...

        assert refusal(f, {"a": [1, "hunter2"]}) == 'tool "f" ran, but its result was withheld: a[1]: expected integer'

    def test_a_model_that_was_made_without_validation_is_refused(self) -> None:
        @tool
        def f() -> Node: ...

        assert "hunter2" not in refusal(f, Node.model_construct(value="hunter2"))

    def test_none_any_and_no_annotation(self) -> None:
        @tool
        def nothing() -> None: ...

        @tool
        def anything() -> Any: ...

        def unannotated(): ...

        untyped = tool(unannotated)
        assert nothing.output_schema == {"type": "null"}
        assert anyio.run(nothing.dump_output, None) is None
        assert "expected null" in refusal(nothing, 3)
        assert anything.output_schema == {}
        assert untyped.output_schema is None
        for loose in (anything, untyped):
            assert anyio.run(loose.dump_output, [Node(value=1), {"a": b"x"}]) == [{"value": 1, "kids": []}, {"a": b"x"}]

    def test_lazy_and_custom_containers_are_read_out(self) -> None:
        @tool
        def f() -> Iterable[int]: ...

        @tool
        def g() -> Any: ...

        assert anyio.run(f.dump_output, range(3)) == [0, 1, 2]
        assert anyio.run(g.dump_output, iter("ab")) == ["a", "b"]
        assert anyio.run(g.dump_output, MappingProxyType({"a": memoryview(b"x")})) == {"a": b"x"}

    def test_what_is_not_of_its_type_fits_if_its_plain_data_does(self) -> None:
        day, node = date(2026, 1, 2), Node(value=1)
        data: object = {"value": 1, "kids": []}
        for annotation, value, expected in (
            (dict[str, Any], node, data),
            (Mapping[str, object], Named("a", day), {"name": "a", "day": day}),
            (dict[str, Any] | None, node, data),
            (list[dict[str, Any]], [node], [data]),
            (Node | list[dict[str, Any]], [node], [data]),
            (str, day, "2026-01-02"),
            (str, Decimal("1.50"), "1.50"),
            (str | int, Color.RED, "red"),
            (dict[str, Any], {1: node}, {"1": data}),
            (dict[str, str], {"day": day}, {"day": "2026-01-02"}),
            (dict[str, Any], {1: b"x", "two": {3}}, {"1": b"x", "two": [3]}),
        ):

            def f() -> Any: ...

            f.__annotations__ = {"return": annotation}
            remarks: list[str] = []
            assert anyio.run(tool(f).dump_output, value, remarks.append) == expected, annotation
            assert anyio.run(tool(validate_output="strict")(f).dump_output, value) == expected, annotation
            assert remarks == []

    def test_what_fits_in_no_form_is_remarked_on(self) -> None:
        for annotation, value in ((dict[str, Any], [1]), (int, Node(value=1)), (dict[str, int], Node(value=1))):

            def f() -> Any: ...

            f.__annotations__ = {"return": annotation}
            remarks: list[str] = []
            anyio.run(tool(f).dump_output, value, remarks.append)
            assert len(remarks) == 1, annotation

    def test_a_decimal_is_declared_as_the_text_that_it_becomes(self) -> None:
        @tool
        def f() -> dict[str, Decimal]: ...

        assert f.output_schema == {"type": "object", "additionalProperties": {"type": "string", "format": "decimal"}}

    def test_generic_models_are_specialised(self) -> None:
        item = TypeVar("item")

        class Page(BaseModel, Generic[item]):
            items: list[item]

        @tool
        def f() -> Page[int]: ...

        assert anyio.run(f.dump_output, Page[int](items=[1])) == {"items": [1]}

    @pytest.mark.parametrize("annotation", [None, Any, int, dict[str, int], list[int], Node, int | list[int]])
    def test_a_hostile_result_is_an_opaque_error(self, annotation: Any) -> None:
        class Hostile:
            def __repr__(self) -> str:
                raise RuntimeError("hunter2")

            __str__ = __iter__ = __len__ = __repr__

            def __getattr__(self, name: str) -> Any:
                raise RuntimeError("hunter2")

        class HostileDict(dict[str, Any]):
            def items(self) -> Any:
                raise RuntimeError("hunter2")

            __iter__ = keys = items

        def f() -> Any: ...

        f.__annotations__ = {} if annotation is None else {"return": annotation}
        for value in (Hostile(), [Hostile()], {"value": Hostile()}):
            assert "hunter2" not in refusal(tool(f), value)
        for value in (HostileDict(value="x"), HostileDict(value=Hostile())):
            try:
                anyio.run(tool(f).dump_output, value)
            except InvalidToolOutput as error:
                assert "hunter2" not in str(error)  # noqa: PT017


class TestExecution:
    pytestmark = pytest.mark.anyio

    async def test_a_sync_function_runs_in_a_thread_with_its_context_variables(self) -> None:
        variable = contextvars.ContextVar("variable", default="unset")

        @tool
        def f() -> tuple[bool, str]:
            return threading.current_thread() is threading.main_thread(), variable.get()

        variable.set("set")
        assert await f.execute(await f.parse_input({}), ToolCall(CONTEXT)) == (False, "set")

    async def test_an_async_function_runs_where_it_is_called(self) -> None:
        @tool
        async def f() -> bool:
            return threading.current_thread() is threading.main_thread()

        assert await f.execute(await f.parse_input({}), ToolCall(CONTEXT)) is True

    async def test_exceptions_pass_through(self) -> None:
        @tool
        def f() -> int:
            raise KeyError("x")

        with pytest.raises(KeyError):
            await f.execute(await f.parse_input({}), ToolCall(CONTEXT))

    async def test_cancellation_does_not_wait_for_a_thread(self) -> None:
        started, finish = threading.Event(), threading.Event()

        @tool
        def f() -> None:
            started.set()
            finish.wait(30)

        async with anyio.create_task_group() as group:
            group.start_soon(f.execute, await f.parse_input({}), ToolCall(CONTEXT))
            await anyio.to_thread.run_sync(started.wait)
            group.cancel_scope.cancel()
        assert not finish.is_set()
        finish.set()

    async def test_a_function_that_returns_an_awaitable_is_awaited(self) -> None:
        async def later() -> int:
            return 3

        f = tool(name="f")(lambda: later())
        assert await f.execute(await f.parse_input({}), ToolCall(CONTEXT)) == 3
