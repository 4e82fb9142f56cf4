"""Programs in a shell whose commands have no standard input, with calls over a real HTTP bridge."""

from __future__ import annotations

import sys
import venv
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import deno
import pytest
from typing_extensions import override

from corral import Containment, Corral, ExecutionContext, Limits, ToolError, tool
from corral.bridges.http import HttpBridge
from corral.bridges.web import WebBridge
from corral.containment import ContainmentKind
from corral.errors import ConfigError
from corral.protocols.connect import ConnectBridge
from corral.protocols.graphql.bridge import GraphqlBridge
from corral.protocols.grpc.bridge import GrpcBridge
from corral.protocols.trpc import TrpcBridge
from corral.shells import LocalShell, Process, Shell, ShellCapabilities, ShellSandbox
from corral.shells.processes import PipeProcess
from corral.types import Language
from tests.bridges.http.engines import NODE
from tests.bridges.http.serving import Server

pytestmark = pytest.mark.anyio

ENGINES: Mapping[Language, str] = {"python": "python3", "typescript": deno.find_deno_bin()}


class ExecuteOnly(LocalShell):
    """As a service that takes a command, and gives its output."""

    @property
    @override
    def capabilities(self) -> ShellCapabilities:
        return ShellCapabilities(containment=ContainmentKind("stub", "vm"), stdin=False, streaming=False)

    @override
    async def spawn(
        self, command: str, *, cwd: str | None = None, env: Mapping[str, str] | None = None, stdin: bool = False
    ) -> Process:
        if stdin:
            raise ConfigError("there is no standard input")
        return await super().spawn(command, cwd=cwd, env=env)


@tool
async def double(n: int) -> int:
    """Doubles a number."""
    return 2 * n


@tool
async def refuse(reason: str) -> None:
    """Fails."""
    raise ToolError(reason)


@asynccontextmanager
async def opened_over_grpc(folder: Path, engines: Mapping[Language, str]) -> AsyncGenerator[Corral]:
    """The same with the server that gRPC has of its own."""
    async with ExecuteOnly(folder) as shell:
        sandbox = ShellSandbox(shell, engines=engines)
        unenforced: Any = {"containment": Containment(accept_unenforced={"cpu_seconds", "memory_mb"}), "check": False}
        async with Corral([double, refuse], sandbox=sandbox, bridge=GrpcBridge(), **unenforced) as corral:
            yield corral
    assert not list(folder.iterdir())


@asynccontextmanager
async def opened(
    folder: Path, made: type[WebBridge] = HttpBridge, engines: Mapping[Language, str] = ENGINES
) -> AsyncGenerator[Corral]:
    bridge = made()
    async with ExecuteOnly(folder) as shell:
        sandbox = ShellSandbox(shell, engines=engines)
        corral = Corral(
            [double, refuse],
            sandbox=sandbox,
            bridge=bridge,
            containment=Containment(accept_unenforced={"cpu_seconds", "memory_mb"}),
            check=False,
        )
        with Server(corral.remote.asgi_app()) as server:
            bridge.url = f"{server.url}/graphql" if made is GraphqlBridge else server.url
            async with corral:
                yield corral
    assert not list(folder.iterdir())


PYTHON = """import asyncio, os
print('one')
print('größer', end='')
sums = await asyncio.gather(*(tools.double(n=n) for n in [1, 2]))
{'sums': sums, 'env': dict(os.environ), 'big': 2**70}
"""
TYPESCRIPT = """console.log('one'); console.log('größer');
const sums: number[] = await Promise.all([1, 2].map((n) => tools.double({ n })));
return { sums, env: { ...process.env }, big: 2n ** 70n };
"""
CASES: Mapping[Language, tuple[str, str, str, str]] = {
    "python": (
        PYTHON,
        "a = 1\nb = 2\nraise ValueError('too far')",
        "await tools.refuse(reason='no')",
        "while True:\n    pass",
    ),
    "typescript": (
        TYPESCRIPT,
        "1;\n2;\nthrow new RangeError('too far');",
        "await tools.refuse({ reason: 'no' })",
        "while (true) {}",
    ),
}


@pytest.mark.parametrize(
    ("language", "engine"),
    [
        ("python", "python3"),
        pytest.param(
            *("typescript", ENGINES["typescript"]),
            marks=pytest.mark.matrix("Node in the gate; other protocols have Deno"),
        ),
        ("typescript", NODE),
    ],
)
async def test_a_program_calls_tools_over_http(language: Language, engine: str, tmp_path: Path) -> None:
    program, failing, refused, endless = CASES[language]
    async with opened(tmp_path, engines={language: engine}) as corral:
        result = await corral.execute(
            program, language=language, env={"MODE": "test"}, context=ExecutionContext(user_id="ada")
        )
        assert result.error is None, result
        assert result.value == {"sums": [2, 4], "env": {"MODE": "test"}, "big": 2**70}
        assert [(entry.level, entry.text) for entry in result.logs] == [("log", "one"), ("log", "größer")]
        assert sorted(call.name for call in result.tool_calls) == ["double", "double"]
        assert result.containment == "stub"

        failed = await corral.execute(failing, language=language)
        assert failed.error is not None
        assert (failed.status, failed.error.line) == ("failed", 3), failed
        assert failed.error.message.endswith("too far")

        told = await corral.execute(refused, language=language)
        assert told.error is not None
        assert (told.error.code, told.error.name) == ("tool_error", "ToolError"), told

        ended = await corral.execute(endless, language=language, limits=Limits(wall_seconds=0.4))
        assert ended.status == "timed_out"


@pytest.mark.parametrize(
    ("language", "bridge"),
    [
        ("typescript", GraphqlBridge),
        ("python", TrpcBridge),
        ("typescript", ConnectBridge),
        ("python", GrpcBridge),
        *(
            pytest.param(*pair, marks=pytest.mark.matrix("the gate has each of these protocols in the other language"))
            for pair in (
                ("python", GraphqlBridge),
                ("typescript", TrpcBridge),
                ("python", ConnectBridge),
                ("typescript", GrpcBridge),
            )
        ),
    ],
)
async def test_a_program_calls_tools_over_other_protocols(
    language: Language, bridge: type[WebBridge | GrpcBridge], tmp_path: Path
) -> None:
    program, *_ = CASES[language]
    over_grpc: Mapping[Language, str] = {**ENGINES, "python": sys.executable}  # which has grpcio
    web = issubclass(bridge, WebBridge)
    async with opened(tmp_path, bridge) if web else opened_over_grpc(tmp_path, over_grpc) as corral:
        result = await corral.execute(program, language=language, env={"MODE": "test"})
        assert result.error is None, result
        assert result.value == {"sums": [2, 4], "env": {"MODE": "test"}, "big": 2**70}
        assert sorted(call.name for call in result.tool_calls) == ["double", "double"]


async def test_a_sandbox_without_grpcio_says_so(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    bare = tmp_path_factory.mktemp("bare")
    venv.create(bare, symlinks=True)
    async with opened_over_grpc(tmp_path, {"python": str(bare / "bin" / "python")}) as corral:
        result = await corral.execute("await tools.double(n=1)", language="python")
        assert result.error is not None
        assert result.error.name == "BridgeError", result
        assert result.error.message.startswith("calls over gRPC need grpcio where the program runs: pip install grpcio")


async def test_what_a_program_writes_is_bounded_and_its_end_is_seen(tmp_path: Path) -> None:
    async with opened(tmp_path) as corral:
        loud = await corral.execute(
            "for n in range(2_000):\n    print('x' * 100)\n7", language="python", limits=Limits(log_bytes=10_000)
        )
        assert loud.value == 7
        assert sum(len(entry.text) for entry in loud.logs) <= 10_000
        large = await corral.execute("'x' * 2000", language="python", limits=Limits(value_bytes=1000))
        assert large.error is not None
        assert large.error.code == "output_exceeded"
        gone = await corral.execute("import os\nos._exit(3)", language="python")
        assert gone.error is not None
        assert gone.error.code == "sandbox_lost", gone
        left = await corral.execute("import subprocess\nsubprocess.Popen(['sleep', '1000'])\n7", language="python")
        assert left.value == 7
        forged = await corral.execute(
            "import os\nos.write(1, b'\\ncorral-outcome-0 value 0 8\\n')\n7", language="python"
        )
        assert forged.value == 7


async def test_output_comes_in_pieces_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole: Any = vars(PipeProcess)["stdout"]

    async def in_bytes(process: Process) -> AsyncIterator[bytes]:
        async for piece in whole.__get__(process):
            for byte in piece:
                yield bytes([byte])

    monkeypatch.setattr(PipeProcess, "stdout", property(in_bytes))
    async with opened(tmp_path) as corral:
        result = await corral.execute("print('one\\n\\ntwo')\n7", language="python")
        assert result.value == 7, result
        assert [entry.text for entry in result.logs] == ["one", "", "two"]
        ended = await corral.execute("import os\nprint('last', flush=True)\nos._exit(3)", language="python")
        assert [entry.text for entry in ended.logs] == ["last"]


async def test_it_needs_the_address_of_the_bridge(tmp_path: Path) -> None:
    shell = ExecuteOnly(tmp_path)
    accepted: Any = {"containment": Containment(accept_unenforced={"cpu_seconds", "memory_mb"}), "check": False}
    with pytest.raises(ConfigError, match=r"HttpBridge\(url=...\)"):
        await Corral(sandbox=ShellSandbox(shell), bridge=HttpBridge(), **accepted).execute("1", language="python")
    with pytest.raises(ConfigError, match=": 'connect' and 'graphql' and 'grpc' and 'http' and 'trpc'"):
        await Corral(sandbox=ShellSandbox(shell), **accepted).execute("1", language="python")
    with pytest.raises(ConfigError, match='bridge="http"'):
        ShellSandbox(shell, bridge="pipe")

    async def open_shell() -> Shell:
        return shell

    late = ShellSandbox(open_shell, containment=ContainmentKind("stub", "vm"))
    with pytest.raises(ConfigError, match='bridge="http"'):
        await Corral(sandbox=late, **accepted).execute("1", language="python")
