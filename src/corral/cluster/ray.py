"""Workers on the nodes of a Ray cluster."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, ClassVar

from typing_extensions import override

from corral.cluster.provider import WorkerSandbox
from corral.cluster.wire import SECRET_VARIABLE
from corral.concurrency.threads import run_in_own_thread
from corral.containment import ContainmentKind, Tier
from corral.errors import ConfigError, requires_extra
from corral.logs import get_logger
from corral.sandboxes import SandboxProvider
from corral.types import Language

logger = get_logger("corral.cluster")

_COMMAND = "import sys; from corral.cli import main; sys.exit(main())"
_ANSWER_SECONDS = 2.0
_START_SECONDS = 60.0
"""Maximum seconds until the first worker of a cluster is ready. Ray takes up to 20 s for an actor on a new node."""


class _NodeWorker:
    """Actor that keeps `corral worker` running on its node. The worker ends with it, by the lifeline."""

    def __init__(self, secret: str, options: Sequence[str]) -> None:
        host: str = import_module("ray").util.get_node_ip_address()
        ours, self._lifeline = os.pipe()
        command = [sys.executable, "-c", _COMMAND, "worker", "--host", host, "--port", "0", "--lifeline", str(ours)]
        environment = {**os.environ, SECRET_VARIABLE: secret}
        self._process = subprocess.Popen(
            [*command, *options], pass_fds=[ours], stdout=subprocess.PIPE, env=environment, text=True
        )
        os.close(ours)
        assert self._process.stdout is not None
        self._address = self._process.stdout.readline().rpartition(" ")[2].strip()

    def address(self) -> str:
        """Returns the worker's address; "" if it has ended."""
        return self._address if self._process.poll() is None else ""


class RaySandbox(WorkerSandbox):
    """Runs programs on the nodes of a Ray cluster, with one `corral worker` on each, which is an actor's process.

    Call `ray.init` first. Nodes that join get a worker, and a worker that has died is replaced, within seconds. All end
    with `aclose`, or with the host. The nodes need the same release of corral, with the extra `ray`. `capacity` is the
    number of programs at once on a node, and `memory_mb` the most memory of each. `resources` are custom resources of
    Ray that a node must have, such as {"sandboxes": 0.01}.

    Raises:
        ConfigError: an argument has an invalid value, or Ray is not initialized. MissingExtra: Ray is not installed.
    """

    name: ClassVar[str] = "ray"

    def __init__(
        self,
        *,
        capacity: int = 64,
        memory_mb: int = 64,
        resources: Mapping[str, float] | None = None,
        containment: Tier | ContainmentKind = "namespaces",
        wait_seconds: float = 30.0,
        local: Mapping[Language, SandboxProvider] | None = None,
    ) -> None:
        with requires_extra("RaySandbox", "ray"):
            self._ray: Any = import_module("ray")
            self._scheduling: Any = import_module("ray.util.scheduling_strategies")
        if not self._ray.is_initialized():
            raise ConfigError("RaySandbox has no cluster: call ray.init() first, with the cluster's address")
        secret = secrets.token_hex(32)
        self._resources = dict(resources or {})
        self._arguments = secret, ["--capacity", str(capacity), "--memory-mb", str(memory_mb)]
        self._actors: dict[str, Any] = {}
        discover = partial(run_in_own_thread, self._keep_workers)  # because Ray's functions block
        super().__init__(
            discover=discover, secret=secret, containment=containment, wait_seconds=wait_seconds, local=local
        )

    @override
    async def aclose(self) -> None:
        await super().aclose()
        while self._actors:
            self._ray.kill(self._actors.popitem()[1], no_restart=True)

    def _keep_workers(self) -> list[str]:
        """Starts workers on nodes without one. Returns the addresses of those that are ready."""
        ray, owned, answers = self._ray, self._resources.keys(), dict[Any, str]()
        nodes = {node["NodeID"] for node in ray.nodes() if node["Alive"] and owned <= node["Resources"].keys()}
        for node in self._actors.keys() - nodes:
            del self._actors[node]  # its last handle: Ray ends it, if its node has not ended it
        for node in nodes:
            if node not in self._actors:
                placement = self._scheduling.NodeAffinitySchedulingStrategy(node, soft=False)
                options = {"max_restarts": 0, "max_task_retries": 0, "num_cpus": 0, "resources": self._resources}
                actor = ray.remote(_NodeWorker).options(**options, scheduling_strategy=placement)
                self._actors[node] = actor.remote(*self._arguments)
            answers[self._actors[node].address.remote()] = node
        ready: list[Any] = []
        for count, seconds in (len(answers), _ANSWER_SECONDS), (1, _START_SECONDS):
            if answers and not ready:
                ready = ray.wait([*answers], num_returns=count, timeout=seconds)[0]
        return [address for each in ready if (address := self._address(each, answers[each]))]

    def _address(self, answer: Any, node: str) -> str:
        """Returns the address of a node's worker; "" if that has failed, so that it gets another one."""
        try:
            if address := self._ray.get(answer):
                return address
            reason = "it has ended"
        except self._ray.exceptions.RayError as error:
            reason = " ".join(str(error).split())[-300:]
        logger.warning("the worker of Ray node %s is lost: %s", node, reason)
        self._ray.kill(self._actors.pop(node), no_restart=True)
        return ""
