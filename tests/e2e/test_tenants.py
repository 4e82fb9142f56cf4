"""examples/tenants: what it prints, what it leaves behind, and more ways from one organization to the other's data."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import base64
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import anyio
import asyncpg
import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from playwright.sync_api import Browser, Page, expect
from pydantic import TypeAdapter
from pydantic_ai import UsageLimitExceeded
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from redis.asyncio import Redis

from corral import Approved, AuditLog, Corral, Denied, ExecutionContext, ToolError, tool
from corral.audit import AuditFilter, open_audit
from corral.errors import ConfigError
from corral.events import ApprovalRequested, ConsoleOutput, Event, ToolCallStarted
from tests.chromium import chromium
from tests.docs.markdown import blocks
from tests.until import until, until_sync

pytestmark = pytest.mark.anyio

EXAMPLE = Path(__file__).parents[2] / "examples" / "tenants"
MODULES = ("app", "assistant", "database", "jobs", "login", "mail", "servers", "service", "tools")

READ_AND_PAY = {"invoices:read", "invoices:pay", "mail:send"}
ANN = ExecutionContext(user_id="ann", organization_id="acme", scopes=READ_AND_PAY)
GUS = ExecutionContext(user_id="gus", organization_id="globex", scopes=READ_AND_PAY)
NUMBERS = {
    "acme": ["ACME-1", "ACME-2", "ACME-3", "ACME-4", "ACME-5"],
    "globex": ["GLOBEX-1", "GLOBEX-2", "GLOBEX-3"],
}
LIST = "return (await tools.list_invoices()).map(({ number }) => number)"

# Becomes the parent of what its descendants leave behind, and ends when all of them have.
WATCH = """
import ctypes, os, signal, subprocess, sys
signal.signal(signal.SIGINT, lambda *_: None)
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
code = subprocess.call(sys.argv[1:])
signal.alarm(60)
try:
    while True:
        os.wait()
except ChildProcessError:
    sys.exit(code)
"""


WHOLE = pytest.mark.matrix(
    "the example whole, as processes of its own; the gate runs its service, its jobs and its pages' routes within this one"
)

# --- the script


@dataclass(frozen=True)
class Ran:
    exit_code: int
    printed: str
    errors: str
    left: list[str]
    """Of its temporary files."""


@contextmanager
def running(warnings: str, *arguments: str) -> Generator[tuple[subprocess.Popen[str], Callable[[], Ran]]]:
    """The script, and what waits for its end and that of all processes that it started."""
    with tempfile.TemporaryDirectory(prefix="corral-", dir="/tmp") as scratch:  # a socket's path has to be short
        Path(scratch).chmod(0o755)
        with subprocess.Popen(
            [
                sys.executable,
                "-c",
                WATCH,
                sys.executable,
                "-X",
                "utf8",
                "-W",
                warnings,
                EXAMPLE / "main.py",
                *arguments,
            ],
            env={**os.environ, "TMPDIR": scratch},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            process_group=0,
        ) as script:

            def wait() -> Ran:
                printed, errors = script.communicate(timeout=60)
                return Ran(script.returncode, printed, errors, [path.name for path in Path(scratch).iterdir()])

            yield script, wait


@pytest.fixture(scope="module")
def ran() -> tuple[Ran, Ran]:
    """The script to its end, and at the same time once more, interrupted while a program runs."""
    # An interrupt may come where Python itself opens a file, and warns of that.
    with running("error") as (_, wait_for_whole), running("ignore") as (script, wait_for_interrupted):
        assert script.stdout is not None
        while "ann tries to reach an invoice" not in script.stdout.readline():
            assert script.poll() is None
        os.killpg(script.pid, signal.SIGINT)  # as a terminal does: the servers get it too
        return wait_for_whole(), wait_for_interrupted()


@WHOLE
def test_the_script_prints_what_its_readme_shows_and_leaves_nothing(ran: tuple[Ran, Ran]) -> None:
    whole, _ = ran
    [shown] = [block.text for block in blocks(EXAMPLE / "README.md") if block.language == "text"]
    assert (whole.exit_code, whole.errors, whole.left) == (0, "", [])
    assert whole.printed.lstrip("\n") == shown


@WHOLE
def test_the_script_leaves_nothing_when_it_is_interrupted(ran: tuple[Ran, Ran]) -> None:
    _, interrupted = ran
    assert (interrupted.exit_code, interrupted.errors, interrupted.left) == (130, "", [])


@WHOLE
def test_one_command_serves_browsers_and_jobs_and_leaves_nothing_after_ctrl_c() -> None:
    with running("ignore", "serve") as (script, wait):
        assert script.stdout is not None
        address = script.stdout.readline().strip()
        assert "key-of-ann" in script.stdout.readline()
        browse(address)
        with httpx.Client(base_url=address.removesuffix("/login"), timeout=30) as client:
            client.post("/jobs/agent", headers={"x-api-key": "key-of-gus"}, content="Which?").raise_for_status()
        assert script.stdout.readline().startswith("mail to gus@globex.example: Your job: agent: 3 unpaid")
        os.killpg(script.pid, signal.SIGINT)
        ended = wait()
    assert (ended.exit_code, ended.left) == (130, [])


def browse(address: str) -> None:
    """A person logs in, chats and approves a mail in Chromium; one of the other organization looks for that."""

    def logged_in(browser: Browser, key: str) -> Page:
        page = browser.new_context().new_page()
        page.goto(address)
        page.get_by_label("API key").fill(key)
        page.get_by_role("button", name="Log in").click()
        return page

    with chromium() as browser:
        ann = logged_in(browser, "key-of-ann")
        ann.get_by_role("main").get_by_role("button", name="Which invoices are unpaid?").click()
        expect(ann.get_by_role("region", name="Conversation")).to_contain_text("5 unpaid")
        expect(ann.get_by_role("button", name="Send")).to_be_visible()
        mail = "await tools.send_mail({ to: 'x@outside.example', subject: 'Hello', text: 'Dear all' })"
        ann.get_by_label("Message", exact=True).fill(f"```ts\n{mail}\n```")
        ann.keyboard.press("Enter")
        ann.get_by_role("group", name="Approval of send_mail").get_by_role("button", name="Deny").click()
        expect(ann.get_by_role("group", name="Program failed")).to_contain_text("denied by ann")
        gus = logged_in(browser, "key-of-gus")
        gus.get_by_text("No conversations yet").wait_for()
        gus.goto(ann.url)  # of ann's conversation
        expect(gus.get_by_role("heading", name="What can I do for you?")).to_be_visible()
        ann.get_by_role("link", name="Details").first.click()
        expect(ann.get_by_role("main")).to_contain_text("5 unpaid")
        gus.goto(ann.url)  # of ann's execution
        expect(gus.get_by_role("alert")).to_have_text("there is no such execution")
        eve = logged_in(browser, "key-of-eve")
        expect(eve.get_by_role("alert")).to_have_text("This API key is not known.")


# --- the service


@dataclass(frozen=True)
class Example:
    """Modules of the example, which import each other by bare names, and servers as its main module starts them."""

    app: ModuleType
    service: ModuleType
    database: ModuleType
    settings: Any
    owner: str
    """URL of PostgreSQL's superuser."""
    inbox: list[EmailMessage]

    def settings_with(self, **others: object) -> Any:
        return self.service.Settings(**{**vars(self.settings), **others})


@pytest.fixture(scope="module")
def example() -> Iterator[Example]:
    inbox: list[EmailMessage] = []
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(sys, "path", [str(EXAMPLE), *sys.path])
        names = ("app", "database", "mail", "servers", "service")
        app, database, mail, servers, service = map(importlib.import_module, names)
        for name in MODULES:
            stack.callback(sys.modules.__delitem__, name)
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="corral-", dir="/tmp")))
        home.chmod(0o711)
        postgres = stack.enter_context(servers.postgres(home / "postgres"))
        owner = f"postgresql://owner@/postgres?host={postgres}"
        asyncio.run(database.create_invoices(owner))
        settings = service.Settings(
            postgres=f"postgresql://invoicing@/postgres?host={postgres}",
            valkey=stack.enter_context(servers.valkey(home / "valkey")),
            rates=stack.enter_context(servers.serving(servers.exchange_rates)),
            audit=home / "audit.sqlite",
            mail=mail.MailServer(stack.enter_context(servers.smtp(inbox))),
        )
        yield Example(app=app, service=service, database=database, settings=settings, owner=owner, inbox=inbox)


@pytest.fixture(scope="module")
async def corral(example: Example) -> AsyncIterator[Corral]:
    async with example.service.open_corral(example.settings, AuditLog(example.settings.audit)) as corral:
        yield corral


@pytest.fixture
async def cache(example: Example) -> AsyncIterator[Any]:
    """Valkey, empty."""
    client: Any = Redis.from_url(example.settings.valkey)  # pyright: ignore[reportUnknownMemberType]
    async with client:
        await client.flushall()
        yield client


async def value_of(corral: Corral, context: ExecutionContext, program: str) -> Any:
    return (await corral.execute(program, context=context)).raise_for_error().value


async def code_of(corral: Corral, context: ExecutionContext, program: str) -> str | None:
    result = await corral.execute(program, context=context)
    return result.error and result.error.code


# --- rows


@pytest.fixture
async def pool(example: Example) -> AsyncIterator[Any]:
    """One connection, in the tools' role: what one transaction leaves behind, the next one would have."""
    async with cast("Any", asyncpg).create_pool(example.settings.postgres, min_size=1, max_size=1) as pool:
        yield pool


async def test_a_query_without_a_filter_has_the_callers_rows_only(example: Example, pool: Any) -> None:
    for context in (ANN, GUS, ANN):
        async with example.database.invoices_of(pool, context) as connection:
            found = await connection.fetch("SELECT organization, number FROM invoices ORDER BY number")
        assert [number for _, number in found] == NUMBERS[str(context.organization_id)]
        assert {organization for organization, _ in found} == {context.organization_id}


async def test_a_connection_back_in_the_pool_has_no_organization(example: Example, pool: Any) -> None:
    async with example.database.invoices_of(pool, ANN):
        pass
    with pytest.raises(ZeroDivisionError):
        async with example.database.invoices_of(pool, GUS):
            raise ZeroDivisionError
    assert await pool.fetchval("SELECT count(*) FROM invoices") == 0


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE invoices DISABLE ROW LEVEL SECURITY",
        "DROP POLICY one_organization ON invoices",
        "CREATE POLICY all_of_them ON invoices USING (true)",
        "SET ROLE owner",
        "ALTER ROLE invoicing BYPASSRLS",
        "UPDATE invoices SET organization = 'globex'",
        "UPDATE invoices SET amount_cents = 1",
        "INSERT INTO invoices VALUES ('globex', 'GLOBEX-9', 'EUR', 1)",
        "DELETE FROM invoices",
        "COPY invoices TO PROGRAM 'cat'",
        "SET row_security = off; SELECT * FROM invoices",
    ],
)
async def test_the_tools_role_cannot_get_around_the_policy(example: Example, pool: Any, statement: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        async with example.database.invoices_of(pool, ANN) as connection:
            await connection.execute(statement)


async def test_who_has_no_organization_has_no_invoices(corral: Corral, cache: Any) -> None:
    nobody = ExecutionContext(scopes=READ_AND_PAY)
    calls = [
        "list_invoices()",
        "get_invoice({ number: 'ACME-1' })",
        "pay_invoice({ number: 'ACME-1', amount_cents: 12000 })",
    ]
    for call in calls:
        assert await code_of(corral, nobody, f"return await tools.{call}") == "tool_error"
    assert await cache.keys("invoices:*") == []


async def test_programs_at_the_same_time_each_see_their_own(corral: Corral, cache: Any) -> None:
    numbers = [number for all_of_one in NUMBERS.values() for number in all_of_one]
    program = f"""
      const found = await Promise.all({json.dumps(numbers)}.map((number) =>
        tools.get_invoice({{ number }}).then((invoice) => invoice.number, () => null)));
      return found.filter((number) => number !== null);
    """
    found: list[tuple[ExecutionContext, list[str]]] = []

    async def run(context: ExecutionContext) -> None:
        found.append((context, await value_of(corral, context, program)))

    async with anyio.create_task_group() as tasks:
        for context in (ANN, GUS) * 3:
            tasks.start_soon(run, context)
    assert len(found) == 6
    assert all(numbers == NUMBERS[str(context.organization_id)] for context, numbers in found)


# --- the cache, payments


async def test_a_cached_list_serves_its_own_organization_only(corral: Corral, cache: Any) -> None:
    assert await value_of(corral, ANN, LIST) == NUMBERS["acme"]
    [invoice, *_] = json.loads(await cache.get("invoices:acme"))
    await cache.set("invoices:acme", json.dumps([{**invoice, "number": "from the cache"}]))
    assert await value_of(corral, ANN, LIST) == ["from the cache"]
    assert await value_of(corral, GUS, LIST) == NUMBERS["globex"]
    assert sorted(await cache.keys("invoices:*")) == [b"invoices:acme", b"invoices:globex"]


async def test_an_approval_is_for_the_amount_that_is_paid(corral: Corral, example: Example, cache: Any) -> None:
    pay = "await tools.pay_invoice({ number: 'ACME-3', amount_cents: %d })"
    assert await code_of(corral, ANN, pay % 1_00) == "tool_error"
    assert await code_of(corral, ANN, pay % 2_000_00) == "tool_error"
    assert await code_of(corral, ANN, pay % 9_400_00) == "approval_denied"
    connection = await cast("Any", asyncpg).connect(example.owner)
    assert await connection.fetchval("SELECT count(*) FROM invoices WHERE paid") == 0
    await connection.close()


# --- mail


def mail_to(address: str, subject: str = "Invoices", text: str = "Five.") -> str:
    return f"await tools.send_mail({json.dumps({'to': address, 'subject': subject, 'text': text})})"


async def test_mail_within_an_organization_is_sent_by_the_services_account(corral: Corral, example: Example) -> None:
    example.inbox.clear()
    await value_of(corral, ANN, mail_to("bob@acme.example"))
    [message] = example.inbox
    assert (message["from"], message["to"], message["subject"]) == (
        *("service@tenants.example", "bob@acme.example", "Invoices"),
    )
    assert message.get_content().strip() == "Five."


@pytest.mark.parametrize("approved", [True, False])
async def test_mail_to_outside_waits_for_somebody(corral: Corral, example: Example, approved: bool) -> None:
    example.inbox.clear()
    for address in ("gus@globex.example", "x@acme.example.org"):

        async def decide(event: Event) -> None:
            if isinstance(event, ApprovalRequested):
                assert example.inbox == []
                answer = Approved() if approved else Denied("not to them")
                assert await corral.executions.settle(event.execution_id, {event.sequence: answer})

        result = await corral.execute(mail_to(address), context=ANN, on_event=decide)
        assert (result.error and result.error.code) == (None if approved else "approval_denied")
        assert [message["to"] for message in example.inbox] == ([address] if approved else [])
        example.inbox.clear()


async def test_a_program_cannot_add_a_header_or_a_reader(corral: Corral, example: Example, cache: Any) -> None:
    example.inbox.clear()
    line_ends = ("\r\n", "\n", "\r", "\u2028", "\x85", "\0")
    mails = [("bob@acme.example", f"Invoices{line_end}Bcc: gus@globex.example") for line_end in line_ends]
    mails += [
        (f"bob@acme.example{end}", "Invoices") for end in ("\r\nBcc: gus@globex.example", ",gus@globex.example", "\n")
    ]
    program = f"""
      const codes = new Set();
      for (const [to, subject] of {json.dumps(mails)})
        await tools.send_mail({{ to, subject, text: "" }}).then(() => codes.add("sent"), (error) => codes.add(error.code));
      return [...codes];
    """
    assert await value_of(corral, ANN, program) == ["invalid_arguments"]
    with pytest.raises(ToolError):
        await example.settings.mail.send("bob@acme.example", "a\r\nBcc: gus@globex.example", "")
    assert example.inbox == []


async def test_the_mail_account_is_out_of_sight_and_its_failure_an_error(example: Example) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    server = type(example.settings.mail)(f"smtp://account:hunter2@127.0.0.1:{port}")
    assert "hunter2" not in repr(server)
    with pytest.raises(ToolError, match="SMTPConnectError") as raised:
        await server.send("bob@acme.example", "a", "b")
    assert "hunter2" not in str(raised.value)


# --- programs that run elsewhere, and rates


@pytest.fixture
async def bridge(corral: Corral) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(cast("Any", corral.remote.asgi_app()))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


async def listed_with(bridge: httpx.AsyncClient, token: str) -> list[str] | str:
    """The invoices that the holder of a token sees, or why there are none."""
    response = await bridge.post("/tools/list_invoices", json={}, headers={"authorization": f"Bearer {token}"})
    if response.status_code == 200:
        return [invoice["number"] for invoice in response.json()]
    assert response.status_code == 401
    return response.json()["error"]["message"]


async def test_a_token_is_its_own_organizations(corral: Corral, bridge: httpx.AsyncClient, cache: Any) -> None:
    for context in (ANN, GUS):
        listed = await listed_with(bridge, corral.remote.token(context))
        assert listed == NUMBERS[str(context.organization_id)]


async def test_a_token_for_an_execution_of_the_other_organization_is_none(
    corral: Corral, bridge: httpx.AsyncClient
) -> None:
    with corral.remote.grant(ANN) as anns:
        for context in (GUS, ANN.model_copy(update={"organization_id": "globex"})):
            signed = corral._load_tokens().issue(anns.execution_id, context)
            assert await listed_with(bridge, signed) == "the token does not belong to its execution"


@pytest.mark.parametrize(
    "change", [{"org": "globex"}, {"sub": "gus", "org": "globex"}, {"exec": "another"}, {"scope": "invoices:all"}]
)
async def test_a_token_that_was_changed_is_none(
    corral: Corral, bridge: httpx.AsyncClient, change: dict[str, str]
) -> None:
    with corral.remote.grant(ANN) as anns, corral.remote.grant(GUS) as other:
        change = {name: other.execution_id if name == "exec" else value for name, value in change.items()}
        header, claims, signature = anns.token().split(".")
        said = json.loads(base64.urlsafe_b64decode(claims + "=="))
        changed = base64.urlsafe_b64encode(json.dumps(said | change).encode()).decode().rstrip("=")
        assert await listed_with(bridge, f"{header}.{changed}.{signature}") == "the token's signature is wrong"


async def test_a_token_ends_with_its_execution(corral: Corral, bridge: httpx.AsyncClient) -> None:
    with corral.remote.grant(ANN) as anns, corral.remote.grant(GUS):
        token = anns.token()
        anns.end()
        assert await listed_with(bridge, token) == "the execution of this token has ended"


async def test_a_rate_is_shared_within_an_organization_and_never_beyond(
    corral: Corral, bridge: httpx.AsyncClient, cache: Any
) -> None:
    async def answered(context: ExecutionContext) -> int:
        headers = {"authorization": f"Bearer {corral.remote.token(context)}"}
        asked = [await bridge.post("/tools/exchange_rate", json={"currency": "USD"}, headers=headers) for _ in range(4)]
        assert {response.status_code for response in asked} <= {200, 429}
        return sum(response.status_code == 200 for response in asked)

    [rate] = next(each for each in corral.tools.snapshot().values() if each.name == "exchange_rate").rates.values()
    assert str(rate) == "3/6s"
    object.__setattr__(rate, "interval_us", 3_600_000_000)  # so that no further call becomes allowed meanwhile
    colleague = ExecutionContext(user_id="bob", organization_id="acme")
    same_name = ExecutionContext(user_id="ann", organization_id="globex")
    crafted = ExecutionContext(user_id="ann", organization_id="acme:ann")
    assert [await answered(context) for context in (ANN, colleague, same_name, crafted)] == [3, 0, 3, 3]


# --- events, records, the console, the record


async def test_events_and_results_hold_what_one_execution_did(corral: Corral, cache: Any) -> None:
    meet = meeting_of(2)
    program = """
      const invoices = await tools.list_invoices();
      await tools.meet();
      console.log(invoices[0].number);
      await tools.get_invoice({ number: invoices[0].number });
    """

    async def run(context: ExecutionContext) -> None:
        events: list[Event] = []
        tools = [*corral.tools.snapshot().values(), meet]
        result = await corral.execute(program, context=context, tools=tools, on_event=events.append)
        first = NUMBERS[str(context.organization_id)][0]
        assert (result.error, result.console) == (None, f"{first}\n")
        calls = [call.name for call in result.tool_calls]
        assert calls == ["list_invoices", "meet", "get_invoice"]
        assert [event.call.name for event in events if isinstance(event, ToolCallStarted)] == calls
        assert [event.entry.text for event in events if isinstance(event, ConsoleOutput)] == [first]
        other = "GLOBEX" if context is ANN else "ACME"
        assert other not in repr(events)
        assert other not in result.to_json()

    async with anyio.create_task_group() as tasks:
        for context in (ANN, GUS):
            tasks.start_soon(run, context)


async def test_a_reader_of_one_organizations_record_sees_no_other(example: Example, tmp_path: Path, cache: Any) -> None:
    audit = AuditLog(path := tmp_path / "audit.sqlite")
    program = "await tools.list_invoices(); await tools.get_invoice({ number: 'GLOBEX-1' })"
    async with example.service.open_corral(example.settings, audit) as corral:
        ids = [(await corral.execute(program, context=context)).execution_id for context in (ANN, GUS)]
    for context, execution_id in zip((ANN, GUS), ids, strict=True):
        events = await read(path, AuditFilter(organization_id=context.organization_id))
        assert {(event.organization_id, event.user_id, event.execution_id) for event in events} == {
            (context.organization_id, context.user_id, execution_id)
        }
        outcome = "failed" if context is ANN else "succeeded"
        assert Counter((event.kind, event.outcome) for event in events) == Counter(
            [("call", "succeeded"), ("call", outcome), ("execution", outcome)]
        )
    other = AuditFilter(organization_id="acme", execution_id=ids[1])
    assert await read(path, other) == []
    assert len(await read(path, AuditFilter())) == 6


async def read(path: Path, wanted: AuditFilter) -> list[Any]:
    reader = open_audit(str(path))
    events = list(await reader.read(wanted, 100))
    await reader.aclose()
    return events


def meeting_of(size: int) -> Any:
    """A tool in which programs wait until so many are there."""
    everybody, there = anyio.Event(), 0

    @tool
    async def meet() -> None:
        nonlocal there
        there += 1
        if there == size:
            everybody.set()
        await everybody.wait()

    return meet


# --- over HTTP


@pytest.fixture(scope="module")
def client(example: Example) -> Iterator[httpx.Client]:
    serving = cast("Any", sys.modules["servers"]).serving
    with (
        serving(
            example.app.create_app(example.settings_with(audit=example.settings.audit.with_name("http.sqlite")))
        ) as url,
        httpx.Client(base_url=url, timeout=30) as client,
    ):
        yield client


Post = Callable[[str, str], Any]


@pytest.fixture
def post(client: httpx.Client) -> Post:
    """Sends a user's program; gives the result."""

    def send(user: str, program: str) -> Any:
        response = client.post("/programs", headers={"x-api-key": f"key-of-{user}"}, content=program)
        return response.raise_for_status().json()

    return send


def test_the_record_over_http_is_the_callers_whatever_the_request_says(client: httpx.Client, post: Post) -> None:
    for user in ("ann", "gus"):
        post(user, f"await tools.get_invoice({{ number: '{uuid.uuid4()}' }})")
    events = client.get(
        "/audit?organization_id=acme", headers={"x-api-key": "key-of-gus", "x-organization": "acme"}
    ).json()
    assert {event["organization_id"] for event in events} == {"globex"}
    assert len(events) == 2


@pytest.mark.parametrize("headers", [{}, {"x-api-key": "key-of-eve"}, {"authorization": "Bearer key-of-ann"}])
def test_nobody_gets_in_without_a_key(client: httpx.Client, headers: dict[str, str]) -> None:
    asked = [("POST", "/programs"), ("POST", "/token"), ("GET", "/audit")]
    asked += [("PUT", "/programs/a"), ("POST", "/jobs/programs/a"), ("POST", "/jobs/agent")]
    for method, path in asked:
        assert client.request(method, path, headers=headers).status_code == 401
    assert client.post("/bridge/tools/list_invoices", headers=headers, json={}).status_code == 401


def test_a_program_that_is_too_large_or_not_text_is_refused(client: httpx.Client) -> None:
    headers = {"x-api-key": "key-of-ann"}
    assert client.post("/programs", headers=headers, content=b"/" * 256_001).status_code == 413
    assert client.post("/programs", headers=headers, content=b"\xff").status_code == 400


def test_no_tool_reaches_inside_but_to_ask_for_a_rate(client: httpx.Client, post: Post, example: Example) -> None:
    for url in (example.settings.rates, client.base_url):
        result = post("ann", f"return await tools.fetch_url({{ url: '{url}' }})")
        assert result["error"]["code"] == "egress_blocked"
    for currency in ("../rates/USD", "USD?x", "http://169.254.169.254/"):
        result = post("ann", f"return await tools.exchange_rate({{ currency: '{currency}' as any }})")
        assert result["error"]["code"] == "invalid_arguments"


def test_a_tool_whose_scope_is_missing_is_out_of_reach_by_any_name(post: Post) -> None:
    named = post("bob", "await tools.pay_invoice({ number: 'ACME-1', amount_cents: 12000 })")
    assert (named["status"], named["error"]["code"]) == ("rejected", "scope_denied")
    computed = post("bob", "await tools['pay_' + 'invoice']({ number: 'ACME-1', amount_cents: 12000 })")
    assert (computed["status"], computed["error"]["code"]) == ("failed", "scope_denied")


# --- the chat page


@contextmanager
def logged_in(client: httpx.Client, user: str) -> Generator[httpx.Client]:
    """A browser of a user, which has come from the login to the chat."""
    headers = {"origin": str(client.base_url).rstrip("/")}
    with httpx.Client(base_url=client.base_url, timeout=30, headers=headers) as browser:
        arrived = browser.post("/login", data={"key": f"key-of-{user}"}, follow_redirects=True)
        assert (arrived.status_code, arrived.url.path) == (200, "/chat/")
        yield browser


def say(browser: httpx.Client, text: str, conversation: str = "talk") -> str:
    """The events of the reply, as text."""
    message = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": text}]}
    response = browser.post("/chat/api/chat", json={"id": conversation, "messages": [message]})
    return response.raise_for_status().text


def test_each_user_of_the_chat_has_the_organizations_rows_and_its_own_conversations(
    client: httpx.Client,
) -> None:
    with logged_in(client, "ann") as ann, logged_in(client, "gus") as gus, logged_in(client, "bob") as bob:
        said = say(ann, "Which are unpaid?", "anns")
        assert "5 unpaid: ACME-1" in said
        assert "GLOBEX" not in said
        [execution] = {part["id"] for part in parts_of(said) if part["type"] == "data-execution"}
        assert ann.get(f"/chat/api/executions/{execution}").status_code == 200
        assert "GLOBEX" in say(gus, "Which are unpaid?", "guss")
        for other in (gus, bob):
            for path in (f"executions/{execution}", "conversations/anns", "chat/anns/stream"):
                assert other.get(f"/chat/api/{path}").status_code in (204, 404)
            assert "anns" not in other.get("/chat/api/conversations").text
            other.delete("/chat/api/conversations/anns")
        assert "anns" in ann.get("/chat/api/conversations").text


def test_a_program_of_the_chat_does_not_reach_the_other_organization(client: httpx.Client) -> None:
    with logged_in(client, "ann") as ann:
        said = say(ann, "```\nreturn await tools.get_invoice({ number: 'GLOBEX-1' })\n```", "reach")
    assert "there is no invoice 'GLOBEX-1'" in said


@pytest.mark.parametrize("key", ["", "key-of-eve", "\udcff"])
def test_nobody_is_logged_in_without_a_key(client: httpx.Client, key: str) -> None:
    with httpx.Client(
        base_url=client.base_url, headers={"x-api-key": "key-of-ann", "cookie": "tenants=ann"}, timeout=30
    ) as browser:
        assert browser.post("/login", data={"key": key.encode(errors="surrogateescape")}).status_code == 401
        assert browser.get("/chat/api/conversations").status_code == 401
        assert browser.post("/login", content=b"k" * 1_001).status_code == 413


def parts_of(said: str) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in said.split("\n\n") if line.startswith("data: {")]
    return [json.loads(line) for line in lines]


# --- jobs


@pytest.fixture
async def jobs(example: Example, cache: Any) -> AsyncIterator[Any]:
    example.inbox.clear()
    async with sys.modules["jobs"].Jobs(example.settings) as jobs:
        yield jobs


@contextmanager
def worker(example: Example) -> Generator[tuple[subprocess.Popen[bytes], int]]:
    """A process that works off jobs, below one that ends when nothing of it is left. Yields both, the second as its pid."""
    settings = TypeAdapter(cast("type[Any]", example.service.Settings)).dump_json(example.settings)
    command = [sys.executable, "-c", WATCH, sys.executable, EXAMPLE / "jobs.py"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as watch:
        assert watch.stdin is not None
        watch.stdin.write(settings)
        watch.stdin.close()
        children = Path(f"/proc/{watch.pid}/task/{watch.pid}/children")
        until_sync(children.read_text)
        worker = int(children.read_text())
        try:
            yield watch, worker
        finally:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGTERM)


async def mails(example: Example, count: int) -> list[tuple[str, str]]:
    """Readers and texts of mails, once there are so many."""
    await until(lambda: len(example.inbox) >= count)
    return [(mail["to"], mail.get_content().strip()) for mail in example.inbox]


@WHOLE
async def test_jobs_run_for_their_user_and_mail_the_result(example: Example, jobs: Any, client: httpx.Client) -> None:
    # A client that reads for a bounded time would end an idle worker, and lose a job that comes meanwhile.
    assert jobs.broker.connection_pool.connection_kwargs["socket_timeout"] is None
    headers = {"x-api-key": "key-of-ann"}
    async with httpx.AsyncClient(base_url=client.base_url, headers=headers, timeout=30) as ann:
        (await ann.put("/programs/count", content=LIST)).raise_for_status()
        (await ann.post("/jobs/programs/count")).raise_for_status()
    with worker(example) as (watch, _):
        [(reader, text)] = await mails(example, 1)
        assert reader == "ann@acme.example"
        assert "ACME-1" in text
        await jobs.program.kiq(user="gus", name="count")
        assert (await mails(example, 2))[1] == ("gus@globex.example", "there is no program 'count'")
        await jobs.agent.kiq(user="gus", prompt="Which are unpaid?")
        reader, text = (await mails(example, 3))[2]
        assert reader == "gus@globex.example"
        assert "3 unpaid: GLOBEX-1" in text
    assert watch.returncode == 0


@WHOLE
async def test_a_job_whose_worker_ends_leaves_no_process_and_does_not_run_again(example: Example, jobs: Any) -> None:
    program = mail_to("ann@acme.example", text="started") + "; for (;;) await tools.list_invoices();"
    await example.database.store_program(example.settings.postgres, ANN, "endless", program)
    for number, end in enumerate((signal.SIGKILL, signal.SIGTERM), 1):
        with worker(example) as (watch, pid):
            await jobs.program.kiq(user="ann", name="endless")
            assert await mails(example, number) == [("ann@acme.example", "started")] * number, end
            os.kill(pid, end)
            await anyio.to_thread.run_sync(watch.wait)
            assert watch.returncode == (-end % 256 if end is signal.SIGKILL else 0)
    with worker(example):
        await jobs.agent.kiq(user="gus", prompt="Which are unpaid?")
        readers = [reader for reader, _ in await mails(example, 3)]
    assert readers == ["ann@acme.example", "ann@acme.example", "gus@globex.example"]


async def test_a_job_closes_its_corral_on_success_error_and_cancellation(
    example: Example, jobs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    module = sys.modules["jobs"]
    monkeypatch.setattr(module, "_tracer", provider.get_tracer("test"))
    opened: list[Corral] = []

    async def succeed(corral: Corral, caller: ExecutionContext) -> str:
        opened.append(corral)
        return str(await value_of(corral, caller, "return 1"))

    async def fail(corral: Corral, _caller: ExecutionContext) -> str:
        opened.append(corral)
        raise RuntimeError("a detail that is for the log")

    async def hang(corral: Corral, caller: ExecutionContext) -> str:
        opened.append(corral)
        scope.cancel()
        return str(await value_of(corral, caller, "for (;;) await tools.list_invoices()"))

    await jobs._run("test", "ann", succeed)
    with pytest.raises(RuntimeError):
        await jobs._run("test", "ann", fail)
    with anyio.CancelScope() as scope:
        await jobs._run("test", "ann", hang)
    assert scope.cancelled_caught
    assert [text for _, text in await mails(example, 2)] == ["1", "The job failed."]
    for corral in opened:
        with pytest.raises(ConfigError, match="closed"):
            await corral.execute("return 1")
    spans = exporter.get_finished_spans()
    assert [span.status.is_ok for span in spans] == [True, False, True]
    assert {dict(span.attributes or {})["organization.id"] for span in spans} == {"acme"}


@pytest.mark.matrix("limits of programs and of jobs are in the gate; here a model that goes on without end")
async def test_an_agent_that_does_not_stop_is_stopped(
    example: Example, jobs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    def again(_messages: list[Any], _info: Any) -> ModelResponse:
        nonlocal asked
        asked += 1
        return ModelResponse([ToolCallPart("execute_code", {"code": "return 1"})])

    monkeypatch.setattr(sys.modules["assistant"], "model_by_environment", lambda: FunctionModel(again))
    with pytest.raises(UsageLimitExceeded):
        await jobs.run_agent("ann", "go on")
    assert asked == 8
    assert await mails(example, 1) == [("ann@acme.example", "The job failed.")]
