"""`fetch` and `EventSource` of programs in TypeScript, with a `Network`, against real servers on the loopback."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from types import SimpleNamespace
from typing import Any

import anyio
import httpx
import pytest
from anyio.abc import SocketAttribute, SocketStream

from corral import Corral, ExecutionContext, ExecutionResult
from corral.audit import AuditEvent
from corral.egress import Header, Network
from corral.errors import ExecutionCancelled
from corral.sandboxes import DenoSandbox
from tests.egress.conftest import Run
from tests.egress.site import Site, site
from tests.egress.test_programs import ATTACKS, NAMES
from tests.egress.wire import Attempts, Server

pytestmark = pytest.mark.anyio

SECRET = "Bearer s3cret-token-of-the-host"


@pytest.fixture
async def web() -> AsyncGenerator[Site]:
    async with site("127.0.0.2") as web:
        yield web


def network(*origins: str, **options: Any) -> Network:
    async def resolver(host: str) -> list[str]:
        if host not in NAMES:
            raise OSError("no such name")
        return NAMES[host]

    return Network(allow=origins, exempt_networks=["127.0.0.2/31"], resolver=resolver, verify=False, **options)


async def test_requests_and_responses_as_programs_write_them(run: Run, web: Site) -> None:
    program = """
      const base = "ORIGIN";
      const bytes = new Uint8Array([0, 1, 2, 253, 254, 255]);
      const form = new FormData(); form.set("a", "1"); form.set("f", new File(["x"], "x.txt"));
      const stream = new ReadableStream({ start(c) { c.enqueue(bytes); c.enqueue(bytes); c.close(); } });
      const bodies = ["héllo", bytes, bytes.buffer, new URLSearchParams({ q: "ü" }), new Blob([bytes]), form, stream];
      const sent = [];
      for (const body of bodies) {
        const told = await (await fetch(base + "/echo", { method: "POST", body, headers: new Headers({ "X-Mine": "1" }) })).json();
        sent.push([told.method, told.size, (told.headers["content-type"] ?? "").split(";")[0], told.headers["x-mine"]]);
      }
      const response = await fetch(new Request(base + "/binary?size=6", { headers: [["accept", "x/y"]] }));
      const copy = response.clone();
      const meta = [response.status, response.ok, response.statusText, response.url, response.redirected, response.headers.get("content-type")];
      const empty = await fetch(base + "/status/204");
      const missing = await fetch(new URL("/status/404", base), { method: "put" });
      return {
        sent, meta, bytes: [...await response.bytes()], copied: (await copy.arrayBuffer()).byteLength, copyUrl: copy.url,
        empty: [empty.status, await empty.text()], missing: [missing.ok, missing.status, await missing.text()],
        blob: (await (await fetch(base + "/binary?size=10")).blob()).size,
        head: (await fetch(base + "/binary?size=10", { method: "HEAD" })).status,
        gzip: await (await fetch(base + "/gzip")).text(),
      };
    """.replace("ORIGIN", web.origin)
    result = await run(network(web.origin), program)
    assert result.error is None
    value = result.value
    assert [each[:3] for each in value["sent"]] == [
        ["POST", 6, "text/plain"],
        ["POST", 6, ""],
        ["POST", 6, ""],
        ["POST", 8, "application/x-www-form-urlencoded"],
        ["POST", 6, ""],
        ["POST", value["sent"][5][1], "multipart/form-data"],
        ["POST", 12, ""],
    ]
    assert {each[3] for each in value["sent"]} == {"1"}
    assert value["meta"] == [200, True, "OK", f"{web.origin}/binary?size=6", False, "application/octet-stream"]
    assert value["bytes"] == [0, 1, 2, 3, 4, 5]
    assert (value["copied"], value["copyUrl"]) == (6, f"{web.origin}/binary?size=6")
    assert value["empty"] == [204, ""]
    assert value["missing"] == [False, 404, "404"]
    assert (value["blob"], value["head"], value["gzip"]) == (10, 200, "x" * 1000)
    assert result.tool_calls == ()


async def test_large_bodies_go_both_ways_in_pieces(run: Run, web: Site) -> None:
    program = """
      const body = new Uint8Array(900_000).map((_, index) => index);
      const back = new Uint8Array(await (await fetch("ORIGIN/mirror", { method: "POST", body })).arrayBuffer());
      const large = await fetch("ORIGIN/binary?size=5000000");
      let size = 0, pieces = 0, largest = 0;
      for await (const piece of large.body) { size += piece.length; pieces += 1; largest = Math.max(largest, piece.length); }
      return { same: back.length === body.length && back.every((each, index) => each === body[index]), size, many: pieces > 10, largest };
    """.replace("ORIGIN", web.origin)
    result = await run(network(web.origin), program)
    assert result.value == {"same": True, "size": 5_000_000, "many": True, "largest": 65_536}


async def test_a_stream_is_read_as_it_comes_and_can_be_left(run: Run, web: Site) -> None:
    program = """
      const response = await fetch("ORIGIN/ticks");
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      const first = (await reader.read()).value;
      await fetch("ORIGIN/go", { method: "POST" });
      const second = (await reader.read()).value;
      await reader.cancel();
      return [first, second];
    """.replace("ORIGIN", web.origin)
    result = await run(network(web.origin), program)
    assert result.value == ["data: 0\n\n", "data: 1\n\n"]
    await web.wait_until_left("/ticks")


async def test_server_sent_events(run: Run, web: Site) -> None:
    program = """
      const source = new EventSource("ORIGIN/events");
      const seen = [];
      await new Promise((done) => {
        source.onopen = () => seen.push("open");
        source.onmessage = (event) => seen.push([event.data, event.lastEventId]);
        source.addEventListener("end", (event) => { seen.push(event.type); source.close(); done(); });
      });
      return [seen, source.readyState];
    """.replace("ORIGIN", web.origin)
    result = await run(network(web.origin), program)
    assert result.value == [["open", ["one\ntwo", ""], ["three", "7"], "end"], 2]


async def test_a_lost_event_source_comes_back_where_it_was_until_the_budget_ends(run: Run) -> None:
    asked: list[bool] = []

    async def reply(stream: SocketStream) -> None:
        async with stream:
            asked.append(b"last-event-id: 5\r\n" in await stream.receive())
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
            await stream.send(head + b"retry: 1\nid: 5\ndata: tick\n\n")

    results: list[ExecutionResult] = []
    async with await anyio.create_tcp_listener(local_host="127.0.0.2") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, reply)
        origin = f"http://127.0.0.2:{listener.extra(SocketAttribute.local_port)}"  # noqa: S610
        program = f"""
            const source = new EventSource("{origin}/");
            let seen = 0;
            source.onmessage = () => seen++;
            await new Promise((done) => source.onerror = () => {{ if (source.readyState === EventSource.CLOSED) done(); }});
            return seen;
        """
        results.append(await run(network(origin, requests=4), program))
        tasks.cancel_scope.cancel()
    assert results[0].value == 4
    assert asked == [False, True, True, True]


async def test_redirects_are_followed_shown_or_refused(run: Run, web: Site) -> None:
    program = """
      const to = "ORIGIN/redirect?to=/echo";
      const followed = await fetch(to);
      const manual = await fetch(to, { redirect: "manual" });
      const refused = await fetch(to, { redirect: "error" }).catch((error) => error.message);
      return [followed.url, followed.redirected, manual.status, manual.headers.get("location"), refused];
    """.replace("ORIGIN", web.origin)
    result = await run(network(web.origin), program)
    refused = "the request was redirected, and redirect is 'error'"
    assert result.value == [f"{web.origin}/echo", True, 302, "/echo", refused]


async def test_credentials_are_the_hosts_and_never_reach_the_program(run: Run, web: Site, server: Server) -> None:
    program = """
      const mine = { AUTHORIZATION: "mine" };
      const told = await (await fetch("ORIGIN/echo", { headers: mine })).json();
      const raw = await (await fetch("ORIGIN/say-headers")).text();
      const header = (await fetch("ORIGIN/say-headers")).headers.get("x-said");
      const away = await (await fetch("ORIGIN/redirect?to=OTHER/", { headers: { "x-mine": "1" } })).json();
      return { told: told.headers.authorization, raw, header, away };
    """.replace("ORIGIN", web.origin).replace("OTHER", server.origin)
    events: list[AuditEvent] = []
    net = network(web.origin, server.origin, credentials={web.host: Header("Authorization", SECRET)})
    result = await run(net, program, audit=events.extend)
    assert result.error is None
    assert result.value["told"] == "[redacted]"
    assert [headers["authorization"] for path, headers in web.requests if path == "/echo"] == [SECRET]
    assert result.value["header"] == "[redacted]"
    assert "[redacted]" in result.value["raw"]
    assert "authorization" not in result.value["away"]
    assert "x-mine" not in result.value["away"]
    assert "s3cret" not in f"{result!r} {json.dumps(result.value)} {events!r}"


async def test_every_attack_ends_as_a_refusal_and_nothing_arrives_inside(
    server: Server, canary: Server, attempts: Attempts, warm_deno: DenoSandbox
) -> None:
    net = network(
        server.origin, f"http://public.example:{server.port}", seconds=0.2, response_bytes=1_000_000, requests=10
    )
    outcomes: dict[str, str | None] = {}
    async with Corral(network=net, sandbox=warm_deno, check=False) as corral:
        for attack in ATTACKS:
            code: str = attack["code"].replace("${PORT}", str(canary.port))
            prelude = "void globalThis; const tools = { fetch: async ({ url }) => (await fetch(url)).text() };\n"
            result = await corral.execute(prelude + code)
            outcomes[attack["id"]] = result.error and result.error.code
    assert len(outcomes) == 42
    assert set(outcomes.values()) <= {"egress_blocked", "call_budget_exceeded", "invalid_arguments", "program_failed"}
    assert attempts.looked_up == []
    assert set(attempts.dialled) <= {"127.0.0.2"}


async def test_a_denial_names_host_and_option_and_is_on_record(run: Run, web: Site) -> None:
    events: list[AuditEvent] = []
    program = """
      const told = [];
      for (const [url, init] of [["http://evil.example/secret?q=1"], ["ORIGIN/echo", { method: "DELETE" }]]) {
        await fetch(url, init).catch((error) => told.push([error.name, error.code, error.message]));
      }
      await fetch("ORIGIN/echo?token=1");
      return told;
    """.replace("ORIGIN", web.origin)
    result = await run(network(web.origin, methods=["get"]), program, audit=events.extend)
    assert result.value == [
        ["EgressBlocked", "egress_blocked", "egress to 'evil.example' blocked: it is not in Network(allow=[...])"],
        [
            "EgressBlocked",
            "egress_blocked",
            f"egress to '{web.host}' blocked: the method DELETE is not in Network(methods=[...])",
        ],
    ]
    requests: list[Any] = [event for event in events if event.kind == "request"]
    assert [(event.outcome, event.arguments["host"], event.arguments["path"]) for event in requests] == [
        ("denied", "evil.example", "/secret"),
        ("denied", web.host, "/echo"),
        ("succeeded", web.host, "/echo"),
    ]
    assert requests[2].arguments["status"] == 200
    assert requests[2].arguments["bytes"] > 0


@pytest.mark.parametrize(
    ("options", "program", "told"),
    [
        ({"requests": 2}, 'for (let i = 0; i < 3; i++) await fetch("ORIGIN/echo")', "Network(requests=2)"),
        ({"requests": 2}, 'await fetch("ORIGIN/redirect?to=/redirect?to=/echo")', "Network(requests=2)"),
        (
            {"request_bytes": 1000},
            'await fetch("ORIGIN/echo", { method: "POST", body: "x".repeat(1001) })',
            "request_bytes=1000",
        ),
        (
            {"response_bytes": 1000},
            'for (let i = 0; i < 3; i++) await (await fetch("ORIGIN/binary?size=400")).text()',
            "response_bytes=1000",
        ),
    ],
)
async def test_budgets_hold_for_the_execution(run: Run, web: Site, options: Any, program: str, told: str) -> None:
    result = await run(network(web.origin, **options), program.replace("ORIGIN", web.origin))
    assert result.error is not None
    assert result.error.code == "call_budget_exceeded"
    assert told in result.error.message


async def test_an_abort_ends_the_request(run: Run, web: Site) -> None:
    program = """
      const controller = new AbortController();
      const asked = fetch("ORIGIN/silent", { signal: controller.signal });
      await fetch("ORIGIN/wait-for?path=/silent");
      controller.abort();
      const early = await fetch("ORIGIN/echo", { signal: AbortSignal.abort() }).catch((error) => error.name);
      return [await asked.catch((error) => error.name), early];
    """.replace("ORIGIN", web.origin)
    result = await run(network(web.origin), program)
    assert result.value == ["AbortError", "AbortError"]
    await web.wait_until_left("/silent")


async def test_an_abort_as_a_response_or_a_piece_comes_is_an_abort_and_ends_the_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    head, piece = anyio.Event(), anyio.Event()
    closed: list[object] = []

    class Body(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            await piece.wait()
            yield b"piece"

        async def aclose(self) -> None:
            closed.append(self)

    class Transport(httpx.AsyncBaseTransport):
        def __init__(self, *_: object) -> None: ...

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            await head.wait()
            return httpx.Response(200, stream=Body())

    monkeypatch.setattr("corral.egress.client._GuardedTransport", Transport)
    caller: Any = SimpleNamespace(execution_id="", context=ExecutionContext())
    async with network("https://example.com").serve(caller, None) as services:
        fetch = services["$fetch"]

        async def is_aborted(call: object) -> None:
            with pytest.raises(ExecutionCancelled):
                await fetch(call)

        opening = {"do": "open", "url": "https://example.com/", "method": "GET"}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(is_aborted, {**opening, "id": 1})
            await anyio.wait_all_tasks_blocked()
            head.set()
            await fetch({"do": "close", "id": 1})
        assert len(closed) == 1
        await fetch({**opening, "id": 2})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(is_aborted, {"do": "read", "id": 2})
            await anyio.wait_all_tasks_blocked()
            piece.set()
            await fetch({"do": "close", "id": 2})
        assert len(closed) == 2


async def test_a_cancelled_execution_frees_its_connections(web: Site, warm_deno: DenoSandbox) -> None:
    net = network(web.origin)
    async with Corral(network=net, sandbox=warm_deno, check=False) as corral:
        async with corral.start(f'await fetch("{web.origin}/silent")') as running:
            await web.wait_until_asked("/silent")
            running.cancel()
            result = await running.result()
        assert result.status == "cancelled"
        await web.wait_until_left("/silent")


async def test_without_a_network_there_is_none(run: Run, web: Site) -> None:
    for net in (None, Network()):
        result = await run(net, f'return await fetch("{web.origin}/echo").catch((error) => error.message)')
        assert result.value.startswith("fetch is off: programs have no network.")
    assert web.requests == []


async def test_sockets_of_node_are_refused_with_what_to_use_instead(web: Site, warm_deno: DenoSandbox) -> None:
    program = """
      import http2 from "node:http2";
      import net from "net";
      import { lookup } from "dns/promises";
      import { spawn } from "child_process";
      return [() => http2.connect("ORIGIN"), () => net.connect(80), () => lookup("a.example"), () => spawn("ls")]
        .map((use) => { try { use(); } catch (error) { return error.message; } });
    """.replace("ORIGIN", web.origin)
    corral = Corral(sandbox=warm_deno, check=False)
    async with corral, corral.session(network=network(web.origin)) as session:
        result = await session.execute(program)
    instead = (
        "; programs have no sockets: use fetch, http.request, EventSource or WebSocket, for the origins of "
        "Network(allow=[...])"
    )
    assert result.value == [
        f'module "http2" is not available to programs: http2.connect() was not done{instead}',
        f'module "net" is not available to programs: net.connect() was not done{instead}',
        f'module "dns/promises" is not available to programs: dns/promises.lookup() was not done{instead}',
        'module "child_process" is not available to programs: child_process.spawn() was not done',
    ]


async def test_many_at_once(run: Run, web: Site) -> None:
    program = """
      const all = await Promise.all(Array.from({ length: 150 }, async (_, index) =>
        (await (await fetch(`ORIGIN/echo?n=${index}`)).json()).query));
      return all.every((query, index) => query === `n=${index}`);
    """.replace("ORIGIN", web.origin)
    result = await run(network(web.origin), program)
    assert result.value is True


ANSWERS = {
    "reason": "HTTP/1.1 200 SECRET\r\nContent-Length: 0\r\n\r\n",
    "headers and body": "HTTP/1.1 200 OK\r\nX-SECRET: 1\r\nX-Told: SECRET\r\nContent-Length: 6\r\n\r\nSECRET",
    "host of a redirect": "HTTP/1.1 302 Found\r\nLocation: http://SECRET.example.com/\r\nContent-Length: 0\r\n\r\n",
    "no address": "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.2:99999/SECRET\r\nContent-Length: 0\r\n\r\n",
}


async def test_a_server_cannot_tell_a_program_the_credential(run: Run) -> None:
    secret = "sK-8t9aQ-of-the-host"
    answers = [
        answer.replace("SECRET", shown(secret)) for answer in ANSWERS.values() for shown in (str, str.upper, str.lower)
    ]

    async def reply(stream: SocketStream) -> None:
        async with stream:
            number = int((await stream.receive()).split(b" ")[1][1:])
            await stream.send(answers[number].encode())

    results: list[ExecutionResult] = []
    async with await anyio.create_tcp_listener(local_host="127.0.0.2") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, reply)
        origin = f"http://127.0.0.2:{listener.extra(SocketAttribute.local_port)}"  # noqa: S610
        net = network(origin, credentials={"127.0.0.2": Header("Authorization", f"Bearer {secret}")})
        program = f"""
            const told = async (number) => {{
              try {{
                const response = await fetch(`{origin}/${{number}}`);
                return [response.status, response.statusText, [...response.headers], await response.text(), response.url];
              }} catch (error) {{ return [String(error), error.stack, JSON.stringify(error)]; }}
            }};
            return await Promise.all([...Array({len(answers)}).keys()].map(told));
        """
        results.append(await run(net, program))
        tasks.cancel_scope.cancel()
    [result] = results
    assert result.error is None
    told = [json.dumps(each).lower() for each in result.value]
    assert len(told) == len(answers)
    assert [answer for answer, each in zip(answers, told, strict=True) if secret.lower() in each] == []
