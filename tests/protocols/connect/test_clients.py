"""Connect by the real client of its project, over both codecs."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from grpc_tools import protoc

from corral import Corral, Limits
from corral.protocols.connect import ConnectBridge
from corral.protocols.grpc.methods import POOL
from tests.bridges.http.serving import CONTEXT, Audited, Clock, Served, Server, Waiting, approve
from tests.foreign import npm_imports, run_deno
from tests.protocols.grpc.serving import more_tools


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    audit, waiting = Audited(), Waiting()
    corral = Corral([*more_tools(), waiting.tool], audit=audit.log, approve=approve, check=False)
    with Server(corral.remote.asgi_app(ConnectBridge())) as server:
        yield Served(corral, server, audit, waiting, Clock())


def descriptors(corral: Corral, folder: Path) -> bytes:
    """A FileDescriptorSet: that of the document as the run_protocr reads it, and the bridge's own service."""

    async def document() -> str:
        return await corral.remote.document("connect", scopes=CONTEXT.scopes)

    (folder / "tools.proto").write_text(anyio.run(document), encoding="utf-8")
    arguments = ["protoc", f"-I{folder}", "--include_imports", f"--descriptor_set_out={folder}/tools.bin"]
    compiler: Any = protoc
    assert compiler.main([*arguments, f"-I{Path(protoc.__file__).parent}/_proto", "tools.proto"]) == 0
    bridge = POOL.FindFileByName("corral/v1/bridge.proto").serialized_pb
    length = bytes([len(bridge) % 128 | 128, len(bridge) // 128])
    return (folder / "tools.bin").read_bytes() + b"\x0a" + length + bridge


@pytest.mark.matrix("TestConnect speaks the protocol in the gate; here the client of its makers does")
def test_connect_node(served: Served, tmp_path: Path) -> None:
    execution = served.grant(limits=Limits(calls=1_000))
    made = Corral([*more_tools(), Waiting().tool], check=False)
    given = {
        "url": served.server.url,
        "token": execution.token(),
        "descriptors": base64.b64encode(descriptors(made, tmp_path)).decode(),
    }
    subpath = {"@bufbuild/protobuf/wkt": npm_imports()["@bufbuild/protobuf"] + "/wkt"}
    printed = run_deno(tmp_path, Path(__file__).parent / "clients.mjs", json.dumps(given), **subpath)
    found: list[dict[str, Any]] = [json.loads(line) for line in printed.splitlines()]
    for said in found:
        assert said.pop("rated")[::2] == ["ResourceExhausted", ["google.rpc.ErrorInfo", "google.rpc.RetryInfo"]]
        assert said.pop("denied")[0] == "Unauthenticated"
        assert said.pop("late")[0] == "DeadlineExceeded"
        assert said.pop("refuse")[:3] == ["FailedPrecondition", "größer\nnot today", ["google.rpc.ErrorInfo"]]
        assert said.pop("failing")[:2] == ["FailedPrecondition", "more than five"]
        assert said == {
            "add": {"result": "9007199254740993n"},
            "grow": {"name": "root", "children": [{"name": "x", "children": []}, {"name": "leaf", "children": []}]},
            "raw": True,
            "many": 64,
            "items": ["0n", "1n", "2n"],
            "received": 10,
            "generic": ['{"$bytes":"AP8="}', True],
        }
    assert len(found) == 2
    assert served.waiting.was_cancelled()
