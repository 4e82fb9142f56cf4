"""Workers on the nodes of a Ray cluster."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from threading import Lock
from typing import Any, ClassVar

from typing_extensions import override

from corral.arguments import checked
from corral.cluster.provider import WorkerSandbox
from corral.cluster.wire import SECRET_VARIABLE
from corral.concurrency.threads import run_in_own_thread, run_shielded_in_thread
from corral.containment import ContainmentKind, Tier
from corral.errors import ConfigError, StartFailed, requires_extra
from corral.logs import get_logger
from corral.sandboxes import SandboxProvider
from corral.types import Language

logger = get_logger("corral.cluster")

_COMMAND = "import sys; from corral.cli import main; sys.exit(main())"
_ANSWER_SECONDS = 2.0
_START_LOOKS = 30
"""Maximum number of looks for the first worker of a cluster. Ray takes up to 20 s for an actor on a new node."""


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


@checked
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
        if capacity < 1 or memory_mb < 1:
            raise ConfigError(f"RaySandbox(): capacity={capacity} and memory_mb={memory_mb} must be at least 1")
        with requires_extra("RaySandbox", "ray"):
            self._ray: Any = import_module("ray")
            self._scheduling: Any = import_module("ray.util.scheduling_strategies")
        if not self._ray.is_initialized():
            raise ConfigError("RaySandbox has no cluster: call ray.init() first, with the cluster's address")
        secret = secrets.token_hex(32)
        self._resources = dict(resources or {})
        self._arguments = secret, ["--capacity", str(capacity), "--memory-mb", str(memory_mb)]
        self._actors: dict[str, Any] = {}
        """Actors by node. Threads change them, with the lock."""
        self._lock = Lock()
        super().__init__(
            discover=self._ready_workers, secret=secret, containment=containment, wait_seconds=wait_seconds, local=local
        )

    @override
    async def aclose(self) -> None:
        await super().aclose()
        await run_shielded_in_thread(self._end_workers)

    async def _ready_workers(self) -> list[str]:
        """Returns the addresses of the workers that are ready. If none is, waits for the first one."""
        for _ in range(_START_LOOKS):
            addresses = await run_in_own_thread(self._keep_workers)  # because Ray's functions block
            if addresses is not None:
                return addresses
        raise StartFailed("no worker on a node of Ray answers; `ray list actors --detail` shows the reason")

    def _keep_workers(self) -> list[str] | None:
        """Starts workers on nodes without one. Returns the addresses of those that are ready; None if none has answered
        yet."""
        ray, required = self._ray, self._resources.keys()
        nodes = {node["NodeID"] for node in ray.nodes() if node["Alive"] and required <= node["Resources"].keys()}
        with self._lock:
            if not self._fleets:  # it has been closed meanwhile
                return []
            for node in self._actors.keys() - nodes:
                del self._actors[node]  # its last handle: Ray ends it, if its node has not ended it
            for node in nodes - self._actors.keys():
                placement = self._scheduling.NodeAffinitySchedulingStrategy(node, soft=False)
                options = {"max_restarts": 0, "max_task_retries": 0, "num_cpus": 0, "resources": self._resources}
                actor = ray.remote(_NodeWorker).options(**options, scheduling_strategy=placement)
                self._actors[node] = actor.remote(*self._arguments)
            answers = {actor.address.remote(): (node, actor) for node, actor in self._actors.items()}
        if not answers:
            return []
        ready = ray.wait([*answers], num_returns=len(answers), timeout=_ANSWER_SECONDS)[0]
        return [address for each in ready if (address := self._address(each, *answers[each]))] if ready else None

    def _address(self, answer: Any, node: str, actor: Any) -> str:
        """Returns the address of a node's worker; "" if the worker has failed, so that the node gets a new one."""
        try:
            if address := self._ray.get(answer):
                return address
            reason = "it has ended; Ray's logs of the node have its messages"
        except self._ray.exceptions.RayError as error:
            reason = " ".join(str(error).split())[-300:]
        with self._lock:
            if self._actors.get(node) is not actor:  # `aclose` has ended it
                return ""
            del self._actors[node]
        logger.warning("the worker of Ray node %s is lost: %s", node, reason)
        self._ray.kill(actor, no_restart=True)
        return ""

    def _end_workers(self) -> None:
        with self._lock:
            actors, self._actors = [*self._actors.values()], {}
        if self._ray.is_initialized():  # otherwise they have ended, and `kill` would start another cluster
            for actor in actors:
                self._ray.kill(actor, no_restart=True)
