"""Workers on the nodes of a Ray cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest

from corral.cluster import RaySandbox
from corral.errors import ConfigError, MissingExtra
from tests.foreign import ray_folder

ROOT = Path(__file__).parents[2]


def test_ray_is_an_extra() -> None:
    assert find_spec("ray") is None, "only the matrix has it, in a folder of its own"
    with pytest.raises(MissingExtra, match=r"RaySandbox needs the module ray: pip install 'corral\[ray\]'"):
        RaySandbox()
    for arguments in {"capacity": 0}, {"memory_mb": 0}, {"capacity": "4"}:
        with pytest.raises(ConfigError, match=rf"RaySandbox\(.*{next(iter(arguments))}"):
            RaySandbox(**cast("Any", arguments))


@pytest.mark.matrix("test_workers_are_discovered_and_leave: here Ray starts the workers, on two nodes")
def test_programs_run_on_all_nodes_of_ray_and_a_killed_worker_is_replaced() -> None:
    settings = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ray_folder())]),
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_raylet_start_wait_time_s": "120",
        "RAY_agent_register_timeout_ms": "120000",
    }
    with TemporaryDirectory(prefix="ray") as folder:  # a short path, because Ray puts sockets there
        environment = {**os.environ, **settings, "RAY_TMPDIR": folder}
        script = [sys.executable, "-m", "tests.cluster.ray_nodes", str(ROOT / "examples/ray_cluster/main.py")]
        run = subprocess.run(script, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    report = json.loads(run.stdout.splitlines()[-1])
    assert sum(report["load"]) == 6
    assert min(report["load"]) >= 2, "both nodes have some"
    assert report["ends"] == ["(7, '')", "(None, 'sandbox_lost')"]
    assert report["after"] == 42
    assert report["left"] == 0, "a sandbox that was closed while it looked for nodes has started no worker"
    assert report["initialized"] is False, "closing a sandbox after Ray's end starts no Ray"
    shown = (ROOT / "examples/ray_cluster/README.md").read_text(encoding="utf-8").split("```text\n")[1].split("```")[0]
    assert report["example"] == shown
