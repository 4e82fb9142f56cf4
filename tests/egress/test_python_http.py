"""`urllib`, `requests` and `httpx` of programs in Python, with a `Network`, against real servers on the loopback."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

import pytest

from corral import Corral, ExecutionResult, Limits
from corral.egress import Header, Network
from corral.sandboxes import CPythonSandbox
from tests.egress.site import Site, site
from tests.egress.test_fetch import SECRET, network
from tests.egress.test_guard import INWARD
from tests.egress.test_programs import URLS
from tests.egress.wire import Attempts, Server

pytestmark = pytest.mark.anyio

LIMITS = Limits(memory_mb=256)
INSIDE = [
    "http://127.0.0.1:${PORT}/",
    "http://localhost:${PORT}/",
    "http://0x7f000001:${PORT}/",
    "http://2130706433:${PORT}/",
    "http://[::1]:${PORT}/",
    "http://[::ffff:127.0.0.1]:${PORT}/",
    "http://127.1:${PORT}/",
    "http://169.254.169.254/latest/meta-data/",
    "http://127.0.0.1.nip.example:${PORT}/",
    "http://evil.example/",
]


@pytest.fixture
async def web() -> AsyncGenerator[Site]:
    async with site("127.0.0.2") as web:
        yield web


class Run(Protocol):
    async def __call__(self, network: Network | None, program: str) -> ExecutionResult: ...


@pytest.fixture(scope="module")
async def libraries(anyio_backend: object) -> AsyncGenerator[CPythonSandbox]:
    async with CPythonSandbox(packages=["requests", "httpx"]) as sandbox:
        yield sandbox


@pytest.fixture
def run(libraries: CPythonSandbox) -> Run:
    async def run(network: Network | None, program: str) -> ExecutionResult:
        async with Corral(network=network, check=False, sandbox={"python": libraries}, limits=LIMITS) as corral:
            return await corral.execute(program, language="python")

    return run


async def test_libraries_work_unchanged(run: Run, web: Site) -> None:
    program = """
import asyncio, json, urllib.request
from concurrent.futures import ThreadPoolExecutor
import httpx, requests

base, out = "ORIGIN", {}
out["urllib"] = json.loads(urllib.request.urlopen(base + "/echo?a=1").read())["query"]
out["requests"] = requests.get(base + "/echo", params={"a": 2}).json()["query"]
with requests.Session() as session:
    out["post"] = session.post(base + "/echo", data=b"x" * 600_000).json()["size"]
    out["followed"] = session.get(base + "/redirect?to=/echo").url == base + "/echo"
    out["json"] = session.post(base + "/echo", json={"a": 1}).json()["headers"]["content-type"]
with httpx.Client() as client:
    out["httpx"] = client.get(base + "/echo?a=3").json()["query"]
    with client.stream("GET", base + "/binary?size=1000000") as response:
        out["streamed"] = sum(len(piece) for piece in response.iter_bytes())
out["status"] = [requests.get(base + "/status/204").text, requests.head(base + "/binary?size=7").headers["content-length"]]
out["gzip"] = requests.get(base + "/gzip").text == "x" * 1000
out["binary"] = list(urllib.request.urlopen(base + "/binary?size=4").read())
async with httpx.AsyncClient() as client:
    replies = await asyncio.gather(*(client.get(f"{base}/echo?n={n}") for n in range(40)))
    out["async"] = sorted(int(reply.json()["query"][2:]) for reply in replies) == list(range(40))

def many():
    with ThreadPoolExecutor(8) as pool:
        return sum(pool.map(lambda n: requests.get(f"{base}/echo?n={n}").json()["query"] == f"n={n}", range(20)))

out["threads"] = await asyncio.to_thread(many)
out
""".replace("ORIGIN", web.origin)
    result = await run(network(web.origin), program)
    assert result.error is None
    assert result.value == {
        "urllib": "a=1",
        "requests": "a=2",
        "post": 600_000,
        "followed": True,
        "json": "application/json",
        "httpx": "a=3",
        "streamed": 1_000_000,
        "status": ["", "7"],
        "gzip": True,
        "binary": [0, 1, 2, 3],
        "async": True,
        "threads": 20,
    }
    assert result.tool_calls == ()


async def test_a_program_without_await_has_it_too_and_its_threads(run: Run, web: Site) -> None:
    program = """
import urllib.request
from concurrent.futures import ThreadPoolExecutor
def ask(n):
    return urllib.request.urlopen(f"ORIGIN/status/200?n={n}").read().decode()
with ThreadPoolExecutor(4) as pool:
    answers = list(pool.map(ask, range(8)))
answers + [ask(9)]
""".replace("ORIGIN", web.origin)
    assert (await run(network(web.origin), program)).value == ["200"] * 9


async def test_a_response_that_is_collected_within_a_call_does_not_hold_it_up(run: Run, web: Site) -> None:
    program = """
import gc, sys, urllib.request
def collect(frame, event, _):
    if event == "call" and frame.f_code.co_name == "_leave":  # in the middle of a call
        gc.collect()
gc.disable()
answers = []
for _ in range(2):
    unread = urllib.request.urlopen("ORIGIN/binary?size=1000000")
    unread.read(1)
    unread.itself = unread
    del unread
    sys.setprofile(collect)
    answers.append(urllib.request.urlopen("ORIGIN/status/200").read().decode())
    sys.setprofile(None)
answers
""".replace("ORIGIN", web.origin)
    assert (await run(network(web.origin), program)).value == ["200", "200"]


async def test_nothing_arrives_inside(run: Run, web: Site, server: Server, canary: Server, attempts: Attempts) -> None:
    urls = [url.replace("${PORT}", str(canary.port)) for url in INSIDE]
    urls += [f"{web.origin}/redirect?to={url}" for url in urls]
    program = f"""
import urllib.request, httpx, requests
async def attempt(ask):
    try:
        answer = ask()
        if hasattr(answer, "__await__"):
            answer = await answer
        return str(answer)
    except Exception as error:
        return "blocked" if "blocked" in str(error) else repr(error)
told = set()
async with httpx.AsyncClient(follow_redirects=True) as client:
    for url in {urls!r}:
        told.add(await attempt(lambda: urllib.request.urlopen(url)))
        told.add(await attempt(lambda: requests.get(url)))
        told.add(await attempt(lambda: httpx.get(url, follow_redirects=True)))
        told.add(await attempt(lambda: client.get(url)))
sorted(told)
"""
    net = network(web.origin, f"http://127.0.0.1.nip.example:{canary.port}", f"http://127.0.0.1:{canary.port}")
    result = await run(net, program)
    assert result.error is None
    assert result.value == ["blocked"]
    assert attempts.looked_up == []
    assert set(attempts.dialled) == {"127.0.0.2"}


@pytest.mark.matrix("the gate has every attack by one library, and an attack by each")
async def test_every_attack_by_every_library_makes_no_connection_inside(
    run: Run, server: Server, canary: Server, attempts: Attempts
) -> None:
    urls = [url.replace("${PORT}", str(canary.port)) for url in (*URLS, *INWARD)]
    program = f"""
import urllib.request, httpx, requests
from concurrent.futures import ThreadPoolExecutor
asks = [lambda url: urllib.request.urlopen(url).read(), requests.get, lambda url: httpx.get(url, follow_redirects=True)]
def attempt(ask, url):
    try:
        answer = ask(url)
        return f"{{url}}: {{getattr(answer, 'content', answer)[:100]}}"
    except Exception:
        return None
with ThreadPoolExecutor(8) as pool:
    arrived = [*pool.map(lambda each: attempt(*each), [(ask, url) for url in {urls!r} for ask in asks])]
[each for each in arrived if each and not each.startswith("data:")]  # which urllib reads by itself
"""
    net = network(server.origin, f"http://public.example:{server.port}", seconds=0.2, requests=1000)
    result = await run(net, program)
    assert result.error is None
    assert (len(urls), result.value) == (82, [])
    assert attempts.looked_up == []
    assert set(attempts.dialled) <= {"127.0.0.2"}


async def test_credentials_never_reach_the_program(run: Run, web: Site) -> None:
    program = """
import requests
told = requests.get("ORIGIN/echo", headers={"AuThOrIzAtIoN": "mine"}).json()["headers"]["authorization"]
said = requests.get("ORIGIN/say-headers")
[told, said.text, said.headers["x-said"]]
""".replace("ORIGIN", web.origin)
    net = network(web.origin, credentials={web.host: Header("Authorization", SECRET)})
    result = await run(net, program)
    assert result.value == ["[redacted]", "<[redacted]> [redacted]", "[redacted]"]
    assert [headers["authorization"] for _, headers in web.requests] == [SECRET] * 2


async def test_budgets_and_denials_can_be_caught(run: Run, web: Site) -> None:
    program = """
import urllib.request
told = []
for url in ["http://evil.example/", "ORIGIN/echo", "ORIGIN/echo"]:
    try:
        urllib.request.urlopen(url).read()
    except PermissionError as error:
        told.append(str(error))
    except CorralError as error:
        told.append([error.code, str(error)])
told
""".replace("ORIGIN", web.origin)
    result = await run(network(web.origin, requests=1), program)
    assert result.value == [
        "egress to 'evil.example' blocked: it is not in Network(allow=[...])",
        ["call_budget_exceeded", "the program has made all its requests: Network(requests=1)"],
    ]


async def test_sockets_are_refused_with_what_to_use_instead(run: Run, web: Site) -> None:
    program = f"""
import asyncio, socket

said = []
try:
    await asyncio.open_connection("127.0.0.2", {web.port})
except OSError as error:
    said.append(str(error))
for ask in (socket.create_connection, lambda place: socket.getaddrinfo(*place)):
    try:
        ask(("127.0.0.2", {web.port}))
    except OSError as error:
        said.append(str(error))
return said
"""
    result = await run(network(web.origin), program)
    assert result.error is None
    assert len(result.value) == 3
    assert all(each.startswith("programs have no sockets: use urllib, requests or httpx") for each in result.value)
    assert web.requests == []


async def test_without_a_network_there_is_none(run: Run, web: Site) -> None:
    result = await run(None, f'import urllib.request\nurllib.request.urlopen("{web.origin}/echo")')
    assert result.error is not None
    assert web.requests == []
