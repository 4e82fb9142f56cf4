"""The conformance suite over workers: both languages, with a secret and with mutual TLS."""

from __future__ import annotations

import ssl
from collections.abc import Generator

import pytest

from corral.cluster import WorkerSandbox
from corral.sandboxes import SandboxProvider
from corral.testing import SandboxSuite
from tests.cluster.processes import SECRET, WorkerProcess, make_certificates


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
