"""A pod for each trust domain, claimed from Kubernetes' agent-sandbox."""

from __future__ import annotations

import hashlib
import json
import secrets
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any, ClassVar, cast

import anyio

from corral.arguments import checked
from corral.cluster.fleet import Node
from corral.cluster.provider import WorkerSandbox
from corral.cluster.wire import checked_secret, engine_version
from corral.concurrency.forks import finalize_in_owner
from corral.concurrency.threads import run_in_own_thread
from corral.containment import ContainmentKind
from corral.errors import ConfigError, StartFailed, requires_extra
from corral.logs import get_logger
from corral.sandboxes import BoxProvider, GuestChannel, GuestFiles
from corral.types import Capabilities, Language, LimitName, SandboxConfig

logger = get_logger("corral.cluster")

_API_SECONDS = 5.0
"""Maximum seconds to connect to the API server, to delete a claim, and to look at one that has no pod."""
_ANSWER_SECONDS = 65.0
"""Maximum seconds for an answer of the API server. By default it gives up on a request after 60 s (--request-timeout),
so no claim is made later."""
_CONNECT_SECONDS = 10.0
"""Maximum seconds until the worker of a ready pod answers."""
_GUEST_SECONDS = 35.0
_DELETIONS = 3
_REASON_CHARS = 400
_REMEDIES: Mapping[object, str] = {
    401: "renew the host's credentials for the cluster",
    403: "grant the host's account create, get, list, watch and delete on sandboxclaims, and check the quota",
    404: "create the namespace, and install agent-sandbox with its extensions",
    422: "install a release of agent-sandbox that serves v1beta1",
    "MaxRetryError": "check the address of the API server, and the network",
    "ReadTimeoutError": "check the address of the API server, and the network",
    "SandboxWarmPoolNotFoundError": "create the SandboxWarmPool, or correct warm_pool=",
    "SandboxTemplateNotFoundError": "create the SandboxTemplate that the pool names",
    "TimeoutError": "raise the pool's replicas, the cluster's capacity, or ready_seconds=",
}
"""Remedies by HTTP status or class of error."""


@dataclass(eq=False)
class _Pod:
    """Claimed pod with its worker."""

    claim: str
    workers: WorkerSandbox
    until: float
    """Time by the monotonic clock from which no more programs start in it."""
    node: Node | None = None
    """Its worker, once a program has started."""


class AgentSandbox(BoxProvider[_Pod]):
    """Runs programs in pods of Kubernetes' agent-sandbox: a pod for each user, with `corral worker --one-owner` in it.

    `warm_pool` names a SandboxWarmPool in `namespace`, whose pods serve at `port`. A claim is made for a user's first
    program, and deleted after two idle minutes, by `aclose`, or when this process exits. If the process is killed, the
    cluster deletes its claims `lifetime_seconds` after they were made. No program starts in the second half of that
    time. `secret`, `tls` and `server_name` are those of `WorkerSandbox`; pods get them by the pool's template.
    `executions_at_once` is the number of programs in a pod, at most the workers' --capacity. `max_pods` bounds the
    claims of this object. A start waits `ready_seconds` for a pod. `containment` is your knowledge of the pods' runtime
    class, by default that of a container. `api_client` is a `kubernetes.client.ApiClient`, by default that of this
    pod's service account or of the kubeconfig.

    Raises:
        ConfigError: an argument has an invalid value, or there is no configuration of a cluster. MissingExtra: the SDK
            is not installed.
    """

    name: ClassVar[str] = "kubernetes"
    languages = frozenset[Language]({"typescript", "python"})
    enforces = frozenset[LimitName]({"cpu_seconds", "memory_mb"})

    @checked
    def __init__(
        self,
        warm_pool: str,
        *,
        namespace: str = "default",
        port: int = 7000,
        secret: str | bytes | None = None,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
        containment: ContainmentKind | None = None,
        executions_at_once: int = 8,
        max_pods: int = 64,
        lifetime_seconds: int = 3600,
        ready_seconds: int = 60,
        api_client: Any = None,
    ) -> None:
        with requires_extra("AgentSandbox", "kubernetes"):
            helper: Any = import_module("k8s_agent_sandbox.k8s_helper")
            self._utils: Any = import_module("k8s_agent_sandbox.utils")
            config: Any = import_module("kubernetes.config")
        numbers = {
            "executions_at_once": executions_at_once,
            "max_pods": max_pods,
            "lifetime_seconds": lifetime_seconds,
            "ready_seconds": ready_seconds,
        }
        for name, value in numbers.items():
            if value < 1:
                raise ConfigError(f"AgentSandbox: {name}={value} is not a positive number")
        self.executions_at_once = executions_at_once
        super().__init__()
        self.containment = containment or ContainmentKind("agent-sandbox", "kernel")
        self.start_timeout_seconds = ready_seconds + _CONNECT_SECONDS + _GUEST_SECONDS
        self._warm_pool, self._namespace, self._port = warm_pool, namespace, port
        self._max_pods, self._lifetime_seconds, self._ready_seconds = max_pods, lifetime_seconds, ready_seconds
        self._new_workers = partial(
            WorkerSandbox,
            secret=checked_secret(secret, has_tls=tls is not None),
            tls=tls,
            server_name=server_name,
            containment=self.containment,
            wait_seconds=_CONNECT_SECONDS,
        )
        self._label_key = secrets.token_bytes(32)
        try:
            self._helper: Any = helper.K8sHelper(api_client)
        except config.ConfigException as error:
            raise ConfigError(f"AgentSandbox has no cluster ({error}); set KUBECONFIG, or pass api_client=") from error
        api = self._helper.custom_objects_api
        for name in (f"{verb}_namespaced_custom_object" for verb in ("create", "get", "list")):
            # Python does not exit before its threads have ended, and the SDK waits for an answer without limit.
            setattr(api, name, partial(getattr(api, name), _request_timeout=(_API_SECONDS, _ANSWER_SECONDS)))
        self._claims: set[str] = set()
        finalize_in_owner(self, _delete_all, self._helper, namespace, self._claims)

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, durable=True)

    def engine_version(self, config: SandboxConfig) -> str:
        """Returns the version of this host's engine. Durable executions run only in pods with the same one."""
        return engine_version(config.language)

    async def aclose(self) -> None:
        await super().aclose()
        self._helper.custom_objects_api.api_client.rest_client.close()  # only idle connections; others are made anew

    async def open(self, config: SandboxConfig) -> _Pod:
        if len(self._claims) >= self._max_pods:
            raise StartFailed(
                f"all {self._max_pods} pods of AgentSandbox are in use; raise max_pods=, or try again later"
            )
        claim = f"corral-{secrets.token_hex(8)}"
        labels = {"app.kubernetes.io/managed-by": "corral"}
        if config.owner is not None:  # whoever may list claims does not learn who the user is
            owner = hashlib.blake2b(json.dumps(config.owner).encode(), key=self._label_key, digest_size=16)
            labels["corral/owner"] = owner.hexdigest()
        self._claims.add(claim)
        given_up = threading.Event()
        try:
            with anyio.fail_after(self._ready_seconds + _API_SECONDS):
                address = await run_in_own_thread(self._claim, claim, labels, given_up, abandon_on_cancel=True)
        except BaseException as error:
            given_up.set()
            if claim in self._claims:
                self._start(partial(self._delete, claim))
            if isinstance(error, Exception):
                raise self._failed(error) from error
            raise
        return _Pod(claim, self._new_workers([address]), time.monotonic() + self._lifetime_seconds / 2)

    async def connect_in(self, box: _Pod, config: SandboxConfig, guest: GuestFiles) -> GuestChannel:
        if time.monotonic() > box.until:
            raise StartFailed(f"the lifetime of claim {box.claim} is half over")
        if box.node is not None and box.node not in box.workers.nodes():
            raise StartFailed(f"the pod of claim {box.claim} is lost")  # its address can be another pod's now
        try:
            channel = await box.workers.connect(config, guest)
        except StartFailed as error:
            raise StartFailed(
                f"the pod of claim {box.claim} runs no program: {error}; check that its template runs `corral worker "
                f"--one-owner` with this release and secret, and that its network policy admits this host"
            ) from error
        box.node = box.node or next(iter(box.workers.nodes()), None)
        return channel

    async def close(self, box: _Pod) -> None:
        await box.workers.aclose()
        await self._delete(box.claim)

    def _claim(self, claim: str, labels: Mapping[str, str], given_up: threading.Event) -> str:
        """Makes a claim, and waits until its pod is ready. Returns the address of the pod's worker. Blocks."""
        helper, namespace = self._helper, self._namespace
        lifecycle = self._utils.construct_sandbox_claim_lifecycle_spec(self._lifetime_seconds)
        try:
            made = helper.create_sandbox_claim(claim, self._warm_pool, namespace, labels=labels, lifecycle=lifecycle)
        except Exception as error:
            if getattr(error, "status", None):  # the API server has refused it
                self._claims.discard(claim)
            raise
        if given_up.is_set():  # the claim did not exist yet when it was deleted
            helper.delete_sandbox_claim(claim, namespace, _request_timeout=_API_SECONDS)
            raise StartFailed("the start was given up")
        version = made["metadata"].get("resourceVersion")
        try:
            helper.wait_for_claim_ready(claim, namespace, self._ready_seconds, version, initial_claim=made)
        except TimeoutError:
            raise TimeoutError(self._condition(claim)) from None
        ip = self._utils.select_pod_ip(self._status(claim).get("sandbox", {}).get("podIPs"))
        if ip is None:
            raise StartFailed(f"claim {claim} is ready without an address of its pod")
        return f"[{ip}]:{self._port}" if ":" in ip else f"{ip}:{self._port}"

    def _status(self, claim: str) -> dict[str, Any]:
        content: dict[str, Any] = self._helper.get_sandbox_claim(claim, self._namespace) or {}
        return content.get("status", {})

    def _condition(self, claim: str) -> str:
        """Returns the reason why a claim is not ready."""
        reasons = [
            f"{each.get('reason')}: {each.get('message')}"
            for each in self._status(claim).get("conditions", [])
            if each.get("type") == "Ready"
        ]
        return f"no pod was ready within {self._ready_seconds} s ({', '.join(reasons) or 'without a reason'})"

    async def _delete(self, claim: str) -> None:
        delete = partial(self._helper.delete_sandbox_claim, claim, self._namespace, _request_timeout=_API_SECONDS)
        reason = ""
        for seconds in range(_DELETIONS):
            await anyio.sleep(seconds)
            try:
                await run_in_own_thread(delete)
            except Exception as error:
                reason = _reason(error)
            else:
                break
        else:
            logger.warning("claim %s could not be deleted, and ends at its shutdown time: %s", claim, reason)
        self._claims.discard(claim)

    def _failed(self, error: Exception) -> StartFailed:
        kind = getattr(error, "status", None) or (type(error).__name__ if str(error) else "MaxRetryError")
        remedy = _REMEDIES.get(kind, "look at the claim's events and at the controller of agent-sandbox")
        place = f"warm pool {self._warm_pool!r} in namespace {self._namespace!r}"
        return StartFailed(f"{place} gave no pod: {_reason(error)}; {remedy}")


def _reason(error: Exception) -> str:
    """Returns the API server's message, without the headers that the SDK adds to it."""
    text = str(error) or "the API server does not answer"
    if (status := getattr(error, "status", None)) is not None:
        text = f"{status} {getattr(error, 'reason', '')}"
        with suppress(ValueError, TypeError, KeyError):
            body = cast("dict[str, str]", json.loads(cast("Any", error).body))
            text = f"{status} {body['message']}"
    return " ".join(text.split())[:_REASON_CHARS]


def _delete_all(helper: Any, namespace: str, claims: set[str]) -> None:
    """Deletes the claims of a process that exits without `aclose`."""
    while claims:
        claim = claims.pop()
        try:
            helper.delete_sandbox_claim(claim, namespace, _request_timeout=_API_SECONDS)
        except Exception as error:
            count = len(claims) + 1
            logger.warning("%d claims were not deleted, and end at their shutdown time: %s", count, _reason(error))
            return
