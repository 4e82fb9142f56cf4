"""Wrong and misspelt arguments of every public callable are errors of ours, which name the argument and the remedy."""

# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import importlib
import inspect
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import typing_extensions

from corral import AuditLog, ConfigError, Corral, ExecutionContext, Limits, RateLimits, define_tool, tool, tools_from
from corral.audit import CallbackSink, JsonLinesSink, PostgresSink, SqliteSink, Telemetry, open_audit
from corral.bridges.http import HttpBridge
from corral.calls.rates_redis import RedisRates
from corral.calls.tokens import ExecutionTokens, Key, KeyRing
from corral.egress import EgressPolicy, Header, Network, SafeClient
from corral.errors import CorralError, ToolDefinitionError
from corral.running.executions import Executions
from corral.running.for_models import ForModels
from corral.running.remote import Remote
from corral.running.sync import SyncCorral
from corral.sandboxes.cpython import CPythonSandbox
from corral.sandboxes.deno import DenoSandbox
from corral.sandboxes.monty import MontySandbox
from corral.sources.mcp import McpServer, mcp_servers
from corral.sources.openapi import ApiKey, Basic, Bearer, OpenApi
from corral.tools import Tool, ToolRegistry


def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


def corral() -> Corral:
    return Corral([add], check=False)


INTEGRATIONS = [
    importlib.import_module(f"corral.integrations.{name}").CodeMode
    for name in ("anthropic", "openai", "openai_agents", "langchain", "google_adk", "pydantic_ai")
]
METHODS = [
    Corral.execute, Corral.start, SyncCorral.execute, Corral.check, SyncCorral.check, ForModels.visible_tools,
    ForModels.declarations, ForModels.catalog, ForModels.tools, ForModels.prompt, Remote.grant, Remote.token,
    Remote.asgi_app, Remote.document, Corral.observe, Executions.waiting, Executions.settle, Executions.cancel,
    Corral.session, Corral.session_files, Corral.drain, Corral.unready, Corral.can_be_durable,
]  # fmt: skip
EVERY: list[Callable[..., Any]] = [
    Corral, *METHODS, tool, define_tool, Tool, tools_from, ToolRegistry.search, ToolRegistry.register, RateLimits,
    McpServer, mcp_servers, OpenApi, Bearer, Basic, ApiKey, DenoSandbox, CPythonSandbox, MontySandbox, AuditLog,
    JsonLinesSink, SqliteSink, PostgresSink, Telemetry, CallbackSink, open_audit, HttpBridge, ExecutionTokens,
    Key, KeyRing, RedisRates, SafeClient, *INTEGRATIONS,
    importlib.import_module("corral.integrations.mcp").mcp_server,
]  # fmt: skip
WITHOUT_TYPE = {
    "function", "input_schema", "output_schema", "things", "tracer_provider", "meter_provider", "cache_control",
    "input", "output",
}  # fmt: skip
"""Parameters that take whatever there is, or what another library says."""


NOUNS = {
    "ForModels": "Corral.model",
    "Remote": "Corral.remote",
    "Executions": "Corral.executions",
    "SyncCorral": "Corral.sync",
}


def shown_name(each: Callable[..., Any]) -> str:
    owner, _, name = each.__qualname__.rpartition(".")
    return f"{NOUNS.get(owner, owner)}.{name}" if owner else name


def parameters(each: Callable[..., Any]) -> Iterator[str]:
    function = each.__init__ if isinstance(each, type) else each
    for name, parameter in inspect.signature(function).parameters.items():
        hint = parameter.annotation
        if parameter.kind is parameter.VAR_KEYWORD:
            options = typing.get_type_hints(inspect.unwrap(function), include_extras=True)[name]
            assert typing.get_origin(options) in (typing.Unpack, typing_extensions.Unpack)
            (described,) = typing.get_args(options)
            yield from typing.get_type_hints(typing.get_origin(described) or described)
        elif name != "self" and parameter.kind is not parameter.VAR_POSITIONAL and hint not in ("Any", "object"):
            yield name


def answer(each: Callable[..., Any], **keywords: Any) -> str:
    """Calls it, awaits what it gives, and returns what its ConfigError says."""
    owners: dict[str, Callable[[], object]] = {"Corral": corral, "ToolRegistry": ToolRegistry}
    owners |= {noun: lambda noun=noun: getattr(corral(), noun.partition(".")[2]) for noun in NOUNS.values()}
    owner = owners.get(shown_name(each).rpartition(".")[0])
    try:
        finish(each(*(() if owner is None else (owner(),)), **keywords))
    except ConfigError as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def test_every_parameter_of_the_wrong_type_is_named_with_what_it_takes() -> None:
    wrong: list[str] = []
    for each in EVERY:
        for name in parameters(each):
            if name in WITHOUT_TYPE:
                continue
            said = answer(each, **{name: object()})
            if not all(part in said for part in (f"{name} takes ", shown_name(each), "not an object")):
                wrong.append(f"{shown_name(each)}, {name}: {said}")
    assert wrong == []


def test_every_misspelt_parameter_is_named_with_the_one_that_is_meant() -> None:
    wrong: list[str] = []
    for each in EVERY:
        for name in parameters(each):
            if name == "function":  # by position only
                continue
            said = answer(each, **{f"{name}e": None})
            if f"no parameter '{name}e'; did you mean " not in said:
                wrong.append(f"{shown_name(each)}, {name}: {said}")
    assert wrong == []


def test_what_is_public_is_looked_at() -> None:
    assert {Corral, Tool, McpServer, OpenApi, AuditLog} <= {*EVERY}
    missing = [
        name
        for name, function in inspect.getmembers(Corral, inspect.isfunction)
        if not name.startswith("_") and function not in METHODS and name not in ("aclose", "connected")
    ]
    assert missing == []


def wrong(make: Callable[[], object]) -> CorralError:
    with pytest.raises(ConfigError) as raised:
        finish(make())
    return raised.value


def finish(given: object) -> None:
    if inspect.iscoroutine(given):
        anyio.run(lambda: given)


class Store:
    def put(self, number: int) -> int:
        return number

    def get(self) -> int:
        return 0


def untyped(value: object) -> Any:
    return value


MISTAKES: list[tuple[Callable[[], object], str]] = [
    (lambda: Corral(check=untyped("require")), "check takes 'auto', 'required', 'off', True or False, not 'require'; did you mean 'required'?"),
    (lambda: Corral(limits=untyped(3)), "limits takes Limits or None, not 3; for example limits=Limits(calls=3)"),
    (lambda: Corral(limits=untyped(Limits)), "not the class Limits; did you mean Limits()?"),
    (lambda: Corral(limit=Limits()), "no parameter 'limit'; did you mean limits=...?"),  # pyright: ignore[reportCallIssue]
    (lambda: Corral(approve=untyped(True)), "approve takes a function or None, not True; for example approve=lambda request: True"),
    (lambda: Corral(rates=untyped("x")), "rates takes RateLimits or None, not a str; for example"),
    (lambda: Corral(tools=untyped(add)), "not a function; did you mean [add]?"),
    (lambda: Corral(untyped({"a": add})), "tools takes a list of Tool, ToolSource or function, not a dict; did you mean [add]?"),
    (lambda: Corral([untyped(Store())]), "not a Store; to make tools of its methods, pass [store.put, store.get];"),
    (lambda: tools_from(Store()), "; or pass its methods, tools_from(store.put, store.get)"),
    (lambda: tools_from({"a": add}), "tools_from takes functions one by one, or a list of them, not a dict"),
    (lambda: Network(allow=["http://10.1.2.3"], credentials={"10.1.2.3": Header("x-key", "secret")}), "allow it with exempt_networks=['10.1.2.3']"),
    (lambda: Corral(*untyped([add, add])), "got 2; did you mean one list, tools=[...]?"),
    (lambda: Corral([add, untyped(3)]), "tools[1] takes Tool, ToolSource or a function, not 3; corral.tools_from(...)"),
    (lambda: Corral(sandbox="dneo"), "unknown name 'dneo' in corral.sandboxes; did you mean 'deno'?"),
    (lambda: Corral(sandbox={untyped("javascript"): "deno"}), "a key of sandbox takes 'typescript' or 'python', not 'javascript'; did you mean 'typescript'?"),
    (lambda: Corral(audit="x.json"), "pass a path that ends in .jsonl or .sqlite"),
    (lambda: Corral(implied_scopes={"admin": "read"}), "implied_scopes['admin'] takes a list of str, not a str; did you mean [...]?"),
    (lambda: Corral(approval_seconds=-1), "approval_seconds must be positive, not -1"),
    (lambda: corral().execute("1", limits=untyped({"calls": 3})), "not a dict; did you mean Limits(calls=...)?"),
    (lambda: corral().execute("1", context=untyped({"userid": "u"})), "not a dict; did you mean ExecutionContext(user_id=...)?"),
    (lambda: corral().execute("1", language=untyped("javascript")), "not 'javascript'; did you mean 'typescript'?"),
    (lambda: corral().execute("1", language=untyped("py")), "not 'py'; did you mean 'python'?"),
    (lambda: corral().execute("1", untyped("python")), "Corral.execute() takes source by position, and others by name; got 2"),  # pyright: ignore[reportCallIssue]
    (lambda: corral().execute("1", env={"A": untyped(1)}), "env['A'] takes str, not 1"),
    (lambda: Limits(call=3), "Limits has no 'call'; did you mean 'calls'? valid keys: wall_seconds"),  # pyright: ignore[reportCallIssue]
    (lambda: Limits(untyped(3)), "Limits takes keyword arguments only: Limits(wall_seconds=...)"),  # pyright: ignore[reportCallIssue]
    (lambda: ExecutionContext(untyped("u")), "takes keyword arguments only: ExecutionContext(user_id=...)"),  # pyright: ignore[reportCallIssue]
    (lambda: EgressPolicy(host=["x"]), "EgressPolicy has no 'host'; did you mean 'hosts'?"),  # pyright: ignore[reportCallIssue]
    (lambda: tool(nmespace="x")(add), "tool() has no parameter 'nmespace'; did you mean namespace=...?"),  # pyright: ignore[reportCallIssue]
    (lambda: tool(untyped("add")), "a tool is made of a function; did you mean tool(name='add')?"),
    (lambda: tool(name="x")(untyped(3)), "not one of int"),
    (lambda: define_tool(name="x", execute=untyped(3)), "define_tool('x'): execute takes a function, not 3"),
    (lambda: McpServer("x", command=untyped("run me")), "McpServer('x'): command takes a list of str or None, not a str; did you mean [...]?"),
]  # fmt: skip


def test_a_newcomers_mistake_is_answered_with_what_was_meant() -> None:
    said = {message: str(wrong(make)) for make, message in MISTAKES}
    assert {message: text for message, text in said.items() if message not in text} == {}


def test_what_is_wrong_with_a_tool_is_an_error_of_its_definition() -> None:
    for make in (
        lambda: tool(scopes=untyped("read"))(add),
        lambda: define_tool(name="x", timeout_seconds=untyped("5"), execute=add),
        lambda: ToolRegistry().register(untyped(add), namespac="x"),  # pyright: ignore[reportCallIssue]
        lambda: tools_from(add, namespac="x"),  # pyright: ignore[reportCallIssue]
    ):
        assert isinstance(wrong(make), ToolDefinitionError)


def test_an_error_shows_no_text_that_may_be_a_secret(tmp_path: Path) -> None:
    error = str(wrong(lambda: McpServer("x", url="https://x.example", headers=untyped("Bearer s3cret"))))
    assert "headers takes a dict from str to str, not a str" in error
    assert "s3cret" not in error


def test_tools_may_come_in_any_iterable_which_is_read_once() -> None:
    for value in ((add,), {add}, [add], iter([add]), ToolRegistry(add), (each for each in [add])):
        assert len(Corral(tools=value).tools) == 1, value


def test_a_function_keeps_its_name_signature_and_kind() -> None:
    assert inspect.iscoroutinefunction(Corral.execute)
    assert "containment" in inspect.signature(Corral).parameters
    assert Corral.execute.__name__ == "execute"
    assert (define_tool.__doc__ or "").startswith("Makes a tool")


def test_a_view_of_tools_is_called_by_the_name_that_users_know() -> None:
    async def search() -> None:
        async with Corral([add], check=False) as opened:
            view = opened.model.visible_tools(ExecutionContext(user_id="ann"), hide_denied=True)
            view.search(untyped(object()))

    with pytest.raises(ConfigError, match=r"ToolRegistry\.search\(\): query takes"):
        anyio.run(search)
