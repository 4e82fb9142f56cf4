"""Pods of agent-sandbox, claimed by its SDK from a stub of the API server."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Generator
from datetime import UTC, datetime
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from corral import Containment, Corral, ExecutionContext, ExecutionResult, tool
from corral.cluster import AgentSandbox, agent_sandbox
from corral.cluster.wire import VERSION, guest_digest
from corral.cluster.worker import Opening, Worker
from corral.errors import ConfigError, MissingExtra, StartFailed
from corral.guest.python.frames import PROTOCOL
from corral.ledger import MemoryLedger
from corral.types import Owner, SandboxConfig
from tests.cluster.api_server import NAMESPACE, TOKEN, ApiServer
from tests.cluster.processes import SECRET
from tests.until import until

pytestmark = pytest.mark.anyio
_matrix = pytest.mark.matrix("test_workers.py runs programs on workers in the gate; here pods are claimed for them")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def api() -> Generator[ApiServer]:
    server = ApiServer()
    yield server
    server.close()
    with warnings.catch_warnings():  # after an error, the SDK leaves the connection of its watch to the collector
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def client(url: str) -> Any:
    kubernetes: Any = import_module("kubernetes.client")
    return kubernetes.ApiClient(kubernetes.Configuration(host=url, api_key={"authorization": TOKEN}))


def sandbox_of(api: ApiServer, **settings: Any) -> AgentSandbox:
    options: dict[str, Any] = {"namespace": NAMESPACE, "port": api.port, "secret": SECRET}
    return AgentSandbox("corral-worker", **{**options, "api_client": client(api.url), **settings})


async def run(corral: Corral, source: str = "1", user: str = "lovelace", **settings: Any) -> ExecutionResult:
    context = ExecutionContext(user_id=user, organization_id="analytical") if user else None
    return await corral.execute(source, language="python", context=context, **settings)


# --- cheap, in the gate


def test_kubernetes_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "k8s_agent_sandbox", None)
    monkeypatch.setitem(sys.modules, "k8s_agent_sandbox.k8s_helper", None)
    line = r"AgentSandbox needs the module k8s_agent_sandbox.*: pip install 'corral\[kubernetes\]'"
    with pytest.raises(MissingExtra, match=line):
        AgentSandbox("corral-worker", secret=SECRET)


async def test_a_worker_of_one_owner_serves_only_the_first_one_of_the_first_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def opening(owner: str | None) -> Opening:
        return Opening(
            version=VERSION,
            protocol=PROTOCOL,
            guest=guest_digest("python"),
            release="1",
            language="python",
            memory_mb=64,
            tier="none",
            owner=owner,
        )

    async def start(config: SandboxConfig) -> None:
        assert config.required_tier == "none"

    async def outcomes(*openings: tuple[str | None, bytes]) -> list[str]:
        worker = Worker(secret=SECRET.encode(), capacity=8, one_owner=True)
        monkeypatch.setattr(worker, "_tiers", {"python": "none"})
        monkeypatch.setattr(worker, "_providers", {"python": SimpleNamespace(guest=start)})
        texts: list[str] = []
        for owner, host in openings:
            try:
                await worker.open(opening(owner), host)
            except Exception as error:
                texts.append(str(error))
            else:
                texts.append("")
        return texts

    refused = "the worker serves one owner of one host (--one-owner), and has another"
    assert await outcomes(
        ("lovelace", b"1"), ("lovelace", b"1"), ("babbage", b"1"), ("lovelace", b"2"), (None, b"1"), ("lovelace", b"1")
    ) == [*("", "", refused, refused, refused, "")]
    assert await outcomes((None, b"1"), (None, b"1"), ("lovelace", b"1")) == ["", refused, refused]


# --- pods


_LOOK = """
import os
answers = []
pid = os.getppid()
while pid > 1:
    command = open(f"/proc/{pid}/cmdline").read()
    answers = []
    for file in "environ", "mem":
        try:
            open(f"/proc/{pid}/{file}", "rb").read(1)
            answers.append(file)
        except OSError as error:
            answers.append(type(error).__name__)
    if "--one-owner" in command:
        break
    pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
answers, "--one-owner" in command
"""
"""Tries to read environment and memory of the pod's worker, which has the same user, without a jail."""


@_matrix
async def test_each_user_has_a_pod_which_is_claimed_reused_and_deleted(api: ApiServer) -> None:
    api.add_spares(2)
    sandbox = sandbox_of(api, max_pods=2)
    async with Corral(sandbox=sandbox, containment=Containment(required="namespaces"), check=False) as corral:
        results = [await run(corral, "1 + 1", user) for user in ("lovelace", "babbage", "lovelace")]
        assert [(each.value, each.containment) for each in results] == [(2, "agent-sandbox")] * 3
        assert (await run(corral, _LOOK)).value == [["PermissionError", "PermissionError"], True]
        with pytest.raises(StartFailed, match="all 2 pods of AgentSandbox are in use; raise max_pods="):
            await run(corral, user="turing")
        assert len(api.claims) == len(api.pods) == 2
    assert not api.claims
    text = json.dumps(api.made)
    assert not any(word in text for word in (SECRET, "lovelace", "babbage", "analytical", '"env"'))
    ada, bob = api.made
    assert ada["metadata"]["labels"]["corral/owner"] != bob["metadata"]["labels"]["corral/owner"]
    for each in api.made:
        assert each["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "corral"
        assert each["spec"]["warmPoolRef"] == {"name": "corral-worker"}
        lifecycle = each["spec"]["lifecycle"]
        assert lifecycle["shutdownPolicy"] == "Delete"
        left = datetime.fromisoformat(lifecycle["shutdownTime"]) - datetime.now(UTC)
        assert 3000 < left.total_seconds() <= 3600


@_matrix
async def test_programs_of_a_corral_that_is_not_open_have_a_pod_each(api: ApiServer) -> None:
    api.add_spares(2)
    sandbox = sandbox_of(api)
    corral = Corral(sandbox=sandbox, check=False)
    for count in (1, 2):
        assert (await run(corral)).value == 1
        await until(lambda count=count: len(api.deleted) == count)
    assert not any("corral/owner" in each["metadata"]["labels"] for each in api.made)
    await sandbox.aclose()


@_matrix
async def test_a_pod_that_dies_loses_its_programs_and_the_next_ones_get_another(
    api: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    api.add_spares(2)
    begun = anyio.Event()

    @tool
    async def wait() -> None:
        """Waits."""
        begun.set()
        await anyio.sleep_forever()

    async with Corral([wait], sandbox=sandbox_of(api), check=False) as corral:
        results: list[ExecutionResult] = []

        async def hold() -> None:
            results.append(await run(corral, "await tools.wait()"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hold)
            await begun.wait()
            for pod in api.pods.values():
                pod.signal(signal.SIGKILL)
        assert [each.error and each.error.code for each in results] == ["sandbox_lost"]
        await until(lambda: "is lost: it hung up" in caplog.text)
        stranger = api.start_pod(api.made_ips[0])  # addresses of pods are used again
        try:
            assert stranger.address
            assert (await run(corral, "2")).value == 2
        finally:
            stranger.end()
        await until(lambda: api.deleted == [api.made[0]["metadata"]["name"]])
        assert len(api.made) == 2
    assert [each.levelno for each in caplog.records if "is lost: it hung up" in each.message] == [logging.WARNING]


@_matrix
async def test_a_durable_program_goes_on_in_another_pod(api: ApiServer) -> None:
    api.add_spares(2)
    calls: list[int] = []

    @tool
    async def change(n: int) -> int:
        """Changes something."""
        calls.append(n)
        if n == 1:
            [pod] = api.pods.values()
            pod.signal(signal.SIGKILL)
            await anyio.to_thread.run_sync(pod.process.wait)
        return n

    source = "[await tools.change(n=n) for n in range(3)]"
    async with Corral(
        [change], sandbox=sandbox_of(api), ledger=MemoryLedger(), resume_on_loss=True, check=False
    ) as corral:
        result = await run(corral, source, durable=True)
    assert (result.value, calls) == ([0, 1, 2], [0, 1, 2]), result.error
    assert len(api.made) == 2


@_matrix
async def test_no_program_starts_in_a_pod_whose_lifetime_is_half_over(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.add_spares(2)
    times: list[float] = []
    monkeypatch.setattr(agent_sandbox, "time", SimpleNamespace(monotonic=lambda: times[-1]))
    async with Corral(sandbox=sandbox_of(api, lifetime_seconds=100), check=False) as corral:
        for time in (0.0, 49.0, 51.0, 100.0):
            times.append(time)
            assert (await run(corral)).value == 1
    assert len(api.made) == 2
    assert len(api.deleted) == 2


# --- claims that fail


CONFIG = SandboxConfig(language="python", owner=Owner("analytical", "lovelace"))


@_matrix
@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ((401, "Unauthorized"), "401 Unauthorized; renew the host's credentials"),
        (
            (403, "sandboxclaims is forbidden: exceeded quota: claims"),
            "403 .*exceeded quota.*; grant .*check the quota",
        ),
        ((404, "the server could not find the requested resource"), "404 .*; create the namespace, and install"),
        ((429, "too many requests"), "429 too many requests; look at the claim's events"),
        ((500, "etcd is gone"), "500 etcd is gone; look at"),
        (("WarmPoolNotFound", "no pool"), "no pool; create the SandboxWarmPool, or correct warm_pool="),
        (("TemplateNotFound", "no template"), "no template; create the SandboxTemplate"),
        (("PodFailed", "exit code 1"), "terminal reason PodFailed: exit code 1; look at"),
        (
            ("Pending", "exceeded quota: pods=10"),
            r"no pod was ready within 1 s \(Pending: exceeded quota: pods=10\); raise",
        ),
    ],
)
async def test_an_api_server_that_refuses_is_one_line_with_the_remedy(
    api: ApiServer, answer: tuple[Any, str], line: str
) -> None:
    if isinstance(answer[0], int):
        api.refusal = answer
    else:
        api.condition = answer
    sandbox = sandbox_of(api, ready_seconds=1)
    with pytest.raises(
        StartFailed, match=f"^warm pool 'corral-worker' in namespace 'agents' gave no pod: .*{line}"
    ) as failure:
        await sandbox.open(CONFIG)
    assert "\n" not in str(failure.value)
    api.refusal = None
    await sandbox.aclose()
    assert not api.claims


@_matrix
async def test_an_api_server_that_is_not_there_is_one_line(api: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    sandbox = AgentSandbox("corral-worker", secret=SECRET, api_client=client("http://127.0.0.1:1"))
    with pytest.raises(StartFailed, match=r"gave no pod: .*refused.*; check the address of the API server"):
        await sandbox.open(CONFIG)
    await sandbox.aclose()
    assert "could not be deleted, and ends at its shutdown time" in caplog.text


@_matrix
async def test_an_api_server_that_does_not_answer_is_one_line(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_sandbox, "_API_SECONDS", 0.1)
    api.gate.clear()
    sandbox = sandbox_of(api, ready_seconds=1)
    with pytest.raises(StartFailed, match="gave no pod: the API server does not answer; check the address"):
        await sandbox.open(CONFIG)
    api.gate.set()
    await until(lambda: api.made)  # and the thread deletes it, since nobody waits any more
    await until(lambda: not api.claims)
    await sandbox.aclose()


@_matrix
async def test_a_request_without_an_answer_ends_by_itself(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_sandbox, "_ANSWER_SECONDS", 0.1)
    api.gate.clear()
    sandbox = sandbox_of(api)
    with pytest.raises(StartFailed, match=r"gave no pod: .*Read timed out.*; check the address of the API server"):
        await sandbox.open(CONFIG)
    await sandbox.aclose()


@_matrix
async def test_a_pod_with_another_secret_is_one_line_with_the_remedy(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_sandbox, "_CONNECT_SECONDS", 0.5)
    async with Corral(sandbox=sandbox_of(api, secret="another secret of this host"), check=False) as corral:
        with pytest.raises(
            StartFailed, match=r"runs no program: .*its secret differs from this host's; check that its template"
        ):
            await run(corral)
    assert not api.claims


@_matrix
@pytest.mark.parametrize("moment", ["before the claim is made", "while its pod starts"])
async def test_a_start_that_is_given_up_leaves_no_claim(api: ApiServer, moment: str) -> None:
    if moment == "before the claim is made":
        api.gate.clear()
    else:
        api.condition = "Pending", "no node"
    sandbox = sandbox_of(api)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sandbox.open, CONFIG)
        await until(lambda: api.claims or (api.posts and not api.gate.is_set()))
        tasks.cancel_scope.cancel()
    await sandbox.aclose()
    api.gate.set()
    await until(lambda: api.deleted)
    assert not api.claims
    assert len(api.made) == 1


@_matrix
@pytest.mark.parametrize("is_ready", [True, False], ids=["with a pod", "at once after a start that failed"])
def test_a_process_that_exits_deletes_its_claims(api: ApiServer, *, is_ready: bool) -> None:
    script = """
import asyncio, sys
from tests.cluster.test_agent_sandbox import CONFIG, client
from corral.cluster import AgentSandbox
from corral.errors import StartFailed
options = {"secret": "x" * 16, "api_client": client(sys.argv[1]), "ready_seconds": int(sys.argv[2])}
sandbox = AgentSandbox("corral-worker", namespace="agents", **options)
try:
    print(asyncio.run(sandbox.open(CONFIG)).claim)
except StartFailed:
    print("StartFailed")
"""
    if is_ready:
        api.add_spares(1)
    else:
        api.condition = "Pending", "no node"
    command = [sys.executable, "-c", script, api.url, "60" if is_ready else "1"]
    done = subprocess.run(command, env={**os.environ}, stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    (claim,) = [each["metadata"]["name"] for each in api.made]
    assert done.stdout.strip() == (claim if is_ready else "StartFailed")
    assert api.deleted == [claim]
    assert not api.claims


@_matrix
@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"max_pods": 0}, "max_pods=0 is not a positive number"),
        ({"lifetime_seconds": -1}, "lifetime_seconds=-1 is not a positive number"),
        ({"secret": "short"}, "the workers' secret has 5 bytes"),
        ({"api_client": None}, r"AgentSandbox has no cluster \(.*\); set KUBECONFIG"),
    ],
)
def test_wrong_settings_are_refused(
    api: ApiServer, settings: dict[str, Any], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("kubernetes.config.kube_config"), "KUBE_CONFIG_DEFAULT_LOCATION", "/nonexistent")
    with pytest.raises(ConfigError, match=line):
        sandbox_of(api, **settings)
