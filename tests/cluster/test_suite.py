"""The conformance suite over workers: both languages, with a secret and with mutual TLS."""

from __future__ import annotations

import ssl
from collections.abc import Generator

import pytest

from corral.cluster import WorkerSandbox
from corral.sandboxes import SandboxProvider
from corral.testing import SandboxSuite
from tests.cluster.processes import SECRET, WorkerProcess, make_certificates
from tests.shells.shared import gate_has


@pytest.fixture(scope="module")
def address() -> Generator[str]:
    worker = WorkerProcess()
    yield worker.address
    worker.end()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[str, ssl.SSLContext]]:
    options, tls = make_certificates(tmp_path_factory.mktemp("certificates"))
    worker = WorkerProcess(*options)
    yield worker.address, tls
    worker.end()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
@gate_has(
    "a_value_and_the_console_leave_the_program",
    "calls_run_at_the_same_time_and_their_errors_can_be_caught",
    "a_program_without_end_is_timed_out_and_the_next_one_runs",
    "executions_at_the_same_time_do_not_mix",
    rest="the sandboxes of workers are those of other tests; here what a connection to a worker could change",
)
class TestWorkers(SandboxSuite):
    @pytest.fixture(autouse=True)
    def _made(self, address: str) -> None:
        self.made = lambda: WorkerSandbox([address], secret=SECRET)

    def provider(self) -> SandboxProvider:
        return self.made()


@pytest.mark.matrix("`TestWorkers` says it in TypeScript, and test_workers.py runs programs in Python")
class TestWorkersInPython(TestWorkers):
    language = "python"


@pytest.mark.matrix("`TestWorkers` says it with a secret; here over mutual TLS")
class TestWorkersOverTls(TestWorkers):
    @pytest.fixture(autouse=True)
    def _made(self, secured: tuple[str, ssl.SSLContext]) -> None:
        self.made = lambda: WorkerSandbox([secured[0]], secret=SECRET, tls=secured[1], server_name="worker")


class TestWorkersOverTlsInPython(TestWorkersOverTls):
    language = "python"
