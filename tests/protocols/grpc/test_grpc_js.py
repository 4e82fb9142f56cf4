"""The client that most JavaScript programs use, with the `.proto` that the bridge writes."""

from __future__ import annotations

import json
from pathlib import Path

from corral.calls import RemoteExecution
from tests.foreign import run_deno
from tests.protocols.grpc.serving import GrpcServed


def test_grpc_js(served: GrpcServed, execution: RemoteExecution, tmp_path: Path) -> None:
    proto = tmp_path / "tools.proto"
    proto.write_text(served.document())
    given = {"address": served.bridge.address, "token": execution.token(), "proto": str(proto)}
    said = json.loads(run_deno(tmp_path, Path(__file__).parent / "clients.mjs", json.dumps(given)))
    assert "send" not in said.pop("methods")
    assert said == {
        "add": {"result": "9007199254740993"},
        "grow": {
            "name": "root",
            "children": [{"name": "x"}, {"name": "leaf"}],
        },
        "many": 64,
        "refuse": {"code": 9, "details": "größer\nnot today", "own": ["tool_error"]},
        "late": 4,
        "numbers": ["0", "1", "2"],
    }
