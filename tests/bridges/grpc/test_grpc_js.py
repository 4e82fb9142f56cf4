"""The client that most JavaScript programs use, with the `.proto` that the bridge writes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from deno import find_deno_bin

from corral import OutsideExecution
from tests.bridges.grpc.serving import GrpcServed
from tests.foreign import deno_environment, npm_imports


def test_grpc_js(served: GrpcServed, execution: OutsideExecution, tmp_path: Path) -> None:
    proto = tmp_path / "tools.proto"
    proto.write_text(served.document())
    imports = tmp_path / "imports.json"
    imports.write_text(json.dumps({"imports": npm_imports()}))
    given = {"address": served.bridge.address, "token": execution.token(), "proto": str(proto)}
    done = subprocess.run(
        [
            find_deno_bin(),
            "run",
            "--allow-all",
            "--cached-only",
            "--no-lock",
            "--quiet",
            f"--import-map={imports}",
            str(Path(__file__).parent / "clients.mjs"),
            json.dumps(given),
        ],
        env=deno_environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
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
