"""`http` and `https` of node in programs with a `Network`, and packages that send by them, against a real server."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any, Protocol

import pytest

from corral import Corral, ExecutionResult
from corral.egress import Header, Network
from corral.packages import NpmPackages
from corral.sandboxes import DenoSandbox
from tests.egress.site import Site, site
from tests.egress.test_fetch import SECRET, network
from tests.egress.test_guard import INWARD
from tests.egress.test_programs import URLS
from tests.egress.wire import Attempts, Server
from tests.foreign import HTTP_CLIENTS

pytestmark = pytest.mark.anyio

ASK = """
import http from "node:http";
import * as https from "https";
const ask = (make, ...body) => new Promise((done) => {
  const request = make();
  const failed = (error) => done([error.code, error.message]);
  request.on("response", async (response) => {
    const parts = [];
    response.on("error", failed).on("data", (part) => parts.push(part));
    await new Promise((end) => response.on("end", end));
    const text = Buffer.concat(parts).toString();
    done({ status: response.statusCode, headers: response.headers, text, complete: response.complete });
  });
  request.on("error", failed);
  for (const part of body) request.write(part);
  request.end();
});
const thrown = (make) => { try { make(); return null } catch (error) { return error.message } };
"""


@pytest.fixture
async def web() -> AsyncGenerator[Site]:
    async with site("127.0.0.2") as web:
        yield web


class Run(Protocol):
    async def __call__(self, network: Network | None, program: str, origin: str) -> ExecutionResult: ...


@pytest.fixture
def run(warm_deno: DenoSandbox) -> Run:
    async def run(network: Network | None, program: str, origin: str) -> ExecutionResult:
        async with Corral(
            network=network, sandbox=warm_deno, check=False, packages=NpmPackages(HTTP_CLIENTS)
        ) as corral:
            return (await corral.execute(program.replace("ORIGIN", origin))).raise_for_error()

    return run


async def test_requests_in_the_forms_of_node(run: Run, web: Site) -> None:
    program = """
      const { hostname, port } = new URL("ORIGIN");
      const agent = new http.Agent({ keepAlive: true });
      const post = await ask(() => http.request("ORIGIN/echo?x=1", { agent, method: "POST", headers: { "X-Mine": ["1", "2"] } }), "ab", Buffer.from("c"));
      const told = JSON.parse(post.text);
      const parts = await ask(() => http.request({ hostname, port, path: "/echo", auth: "a:b", timeout: 20000 }));
      const empty = await ask(() => http.request(new URL("ORIGIN/status/204")));
      const large = await ask(() => http.get("ORIGIN/binary?size=300000"));
      const byCallback = await new Promise((done) => http.get({ host: hostname, port, path: "/status/404" }, (response) => {
        let text = "";
        response.setEncoding("utf8").on("data", (part) => (text += part)).on("end", () => done([response.statusCode, text]));
      }));
      return {
        told: [post.status, told.method, told.query, told.size, told.headers["x-mine"]], type: post.headers["content-type"],
        auth: JSON.parse(parts.text).headers.authorization, empty: [empty.status, empty.text, empty.complete], large: large.text.length > 0,
        gzip: await ask(() => http.get("ORIGIN/gzip")), head: await ask(() => http.request("ORIGIN/gzip", { method: "HEAD" })),
        redirect: await ask(() => http.get("ORIGIN/redirect?to=/x")), byCallback,
      };
    """
    value = (await run(network(web.origin), ASK + program, web.origin)).value
    assert value["told"] == [200, "POST", "x=1", 3, "1, 2"]
    assert (value["type"], value["auth"], value["large"]) == ("application/json", "Basic YTpi", True)
    assert (value["empty"], value["byCallback"]) == ([204, "", True], [404, "404"])
    assert (value["gzip"]["text"], value["gzip"]["headers"].get("content-encoding")) == ("x" * 1000, None)
    assert (value["head"]["text"], value["head"]["headers"].get("content-encoding")) == ("", "gzip")
    assert (value["redirect"]["status"], value["redirect"]["headers"]["location"]) == (302, "/x")


async def test_a_response_streams_and_can_be_left(run: Run, web: Site) -> None:
    program = """
      const [first, second, error] = await new Promise((done) => {
        const seen = [];
        const request = http.get("ORIGIN/ticks", (response) => {
          response.on("data", (part) => {
            seen.push(`${part}`);
            if (seen.length === 1) http.get("ORIGIN/go").on("response", (other) => other.resume());
            else request.destroy();
          });
          response.on("close", () => done([...seen, response.complete]));
        });
      });
      const request = http.get("ORIGIN/silent");
      const failed = new Promise((done) => request.on("error", (error) => done(error.code)));
      await fetch("ORIGIN/wait-for?path=/silent");
      request.setTimeout(1, () => request.destroy());
      const waited = await failed;
      return [first, second, error, waited];
    """
    result = await run(network(web.origin), ASK + program, web.origin)
    assert result.value == ["data: 0\n\n", "data: 1\n\n", False, "ECONNRESET"]
    await web.wait_until_left("/ticks")
    await web.wait_until_left("/silent")


async def test_what_is_of_sockets_is_refused_by_its_name(run: Run, web: Site) -> None:
    program = """
      return [
        () => http.createServer(), () => http.get({ socketPath: "/x" }), () => https.get("https://x.example", { ca: "x" }),
        () => new https.Agent({ rejectUnauthorized: false }), () => http.get("https://x.example"),
        () => http.request("ORIGIN", { headers: { Upgrade: "websocket" } }), () => http.request("ORIGIN").addTrailers({}),
        () => http.request("ORIGIN", { method: "CONNECT" }), () => require("net").connect(80), () => require("dns").lookup("x"),
      ].map(thrown);
    """
    said: Any = (await run(network(web.origin), ASK + program, web.origin)).value
    expected = (
        "http.createServer() was not done; programs have no sockets: use fetch, http.request",
        '"socketPath" is not available: programs have no sockets: the host connects',
        '"ca" is not available',
        '"rejectUnauthorized: false" is not available',
        'Protocol "https:" not supported',
        "use WebSocket for web sockets",
        "a trailer is not available",
        "the method CONNECT is not available",
        "net.connect() was not done; programs have no sockets: use fetch",
        "dns.lookup() was not done; programs have no sockets: use fetch",
    )
    assert [part in text for part, text in zip(expected, said, strict=True)] == [True] * len(expected)


async def test_denials_and_no_network_are_errors_of_the_request(run: Run, web: Site, canary: Server) -> None:
    program = f"""return [
      await ask(() => http.get({{ host: "127.0.0.1", port: {canary.port} }})),
      await ask(() => http.get("http://127.0.0.2:{web.port}@127.0.0.1:{canary.port}/")),
    ];"""
    denied = (await run(network(web.origin), ASK + program, web.origin)).value
    assert [code for code, _ in denied] == ["egress_blocked"] * 2
    off = (await run(None, ASK + 'return await ask(() => http.get("ORIGIN/x"));', web.origin)).value
    assert off == [
        None,
        "fetch is off: programs have no network. Call a tool for what you need; Object.keys(tools) lists them.",
    ]
    assert canary.requests == []


async def test_every_attack_by_http_and_fetch_makes_no_connection_inside(
    run: Run, server: Server, canary: Server, attempts: Attempts
) -> None:
    urls = [url.replace("${PORT}", str(canary.port)) for url in (*URLS, *INWARD)]
    program = f"""
      const arrived = [];
      const note = (url, text) => void arrived.push(`${{url}}: ${{text}}`);
      for (const url of {json.dumps(urls)}) {{
        await fetch(url).then((response) => response.text()).then((text) => note(url, text), () => {{}});
        for (const make of [() => http.get(url), () => https.get(url), () => http.get({{ host: url, path: url }})]) {{
          try {{
            const answer = await ask(make);
            if (!Array.isArray(answer) && answer.status !== 302) note(url, answer.text);
          }} catch {{}}
        }}
      }}
      return arrived;
    """
    net = network(server.origin, f"http://public.example:{server.port}", seconds=0.2, requests=1000)
    assert (len(urls), (await run(net, ASK + program, "")).value) == (82, [])
    assert attempts.looked_up == []
    assert set(attempts.dialled) <= {"127.0.0.2"}


async def test_packages_of_node_send_by_it_with_the_hosts_credentials(run: Run, web: Site) -> None:
    net = network(web.origin, credentials={"127.0.0.2": Header("Authorization", SECRET)})
    program = """
      import axios from "axios";
      import fetch from "node-fetch";
      const node = axios.create({ adapter: "http", baseURL: "ORIGIN" });
      const posted = await node.post("/echo", { a: 1 }, { params: { q: 1 } });
      const missing = await node.get("/status/404").catch((error) => [error.code, error.response.status]);
      const denied = await node.get("http://127.0.0.1:1/").catch((error) => error.code);
      const fetched = await fetch("ORIGIN/echo", { method: "POST", body: "abc" });
      return {
        posted: [posted.status, posted.data.query, posted.data.size, posted.data.headers.authorization], missing, denied,
        gzip: (await node.get("/gzip")).data.length, redirected: (await node.get("/redirect?to=/echo")).data.method,
        bytes: (await node.get("/binary?size=300000", { responseType: "arraybuffer" })).data.length,
        fetched: [fetched.status, (await fetched.json()).size, (await (await fetch("ORIGIN/gzip")).text()).length],
      };
    """
    assert (await run(net, program, web.origin)).value == {
        "posted": [200, "q=1", 7, "[redacted]"],
        "missing": ["ERR_BAD_REQUEST", 404],
        "denied": "egress_blocked",
        "gzip": 1000,
        "redirected": "GET",
        "bytes": 300_000,
        "fetched": [200, 3, 1000],
    }
