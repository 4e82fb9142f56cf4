"""The part of Kubernetes' API server that deals with claims of agent-sandbox, and its controller. Pods are real workers.

It was written from the types of agent-sandbox's `extensions.agents.x-k8s.io/v1beta1`, and from what its SDK sends.
"""

from __future__ import annotations

import itertools
import json
import socket
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import jsonschema_rs

from tests.cluster.processes import WorkerProcess

__all__ = ["NAMESPACE", "TOKEN", "ApiServer"]

NAMESPACE = "agents"
TOKEN = "Bearer the token of the host's service account"
_PATH = f"/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/{NAMESPACE}/sandboxclaims"
_NAME = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_KEY = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
_LABEL = "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"


def _object(required: tuple[str, ...] = (), **properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _map(key: str, value: str) -> dict[str, object]:
    return {
        "type": "object",
        "propertyNames": {"pattern": key},
        "additionalProperties": {"type": "string", "pattern": value},
    }


_CLAIM = jsonschema_rs.validator_for(
    _object(
        ("apiVersion", "kind", "metadata", "spec"),
        apiVersion={"const": "extensions.agents.x-k8s.io/v1beta1"},
        kind={"const": "SandboxClaim"},
        metadata=_object(
            ("name",),
            name={"type": "string", "pattern": _NAME, "maxLength": 253},
            labels=_map(_KEY, _LABEL),
            annotations=_map(_KEY, ""),
        ),
        spec=_object(
            ("warmPoolRef",),
            warmPoolRef=_object(("name",), name={"type": "string"}),
            lifecycle=_object(
                shutdownTime={"type": "string", "format": "date-time"},
                ttlSecondsAfterFinished={"type": "integer", "minimum": 0},
                shutdownPolicy={"enum": ["Delete", "DeleteForeground", "Retain"]},
            ),
            additionalPodMetadata=_object(labels=_map(_KEY, _LABEL), annotations=_map(_KEY, "")),
            env={"type": "array", "items": _object(("name", "value"), name={}, value={}, containerName={})},
        ),
    ),
    validate_formats=True,
)

_WITHOUT_CAPABILITIES = """
import ctypes, os, sys
for capability in range(41):
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP
os.execv(sys.executable, [sys.executable, "-c", "import sys; from corral.cli import main; sys.exit(main())", *sys.argv[1:]])
"""
"""A pod's processes have no capabilities, even if they run as root."""


class ApiServer:
    """Server at `url`. Tests set `refusal`, `condition` and `gate` to change its answers."""

    def __init__(self) -> None:
        self.claims: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, WorkerProcess] = {}
        self.made: list[dict[str, Any]] = []
        """Each claim, as it was sent."""
        self.made_ips: list[str] = []
        """Addresses of claimed pods, in order."""
        self.deleted: list[str] = []
        self.refusal: tuple[int, str] | None = None
        """Status and message for each request."""
        self.condition: tuple[str, str] | None = None
        """Reason and message for which claims do not become ready."""
        self.gate = threading.Event()
        """While it is not set, claims are not made, and requests for them wait."""
        self.gate.set()
        self.posts = 0
        self._changed = threading.Condition()
        self._versions = itertools.count(1)
        self._addresses = (f"127.0.{number // 250}.{number % 250 + 2}" for number in itertools.count())
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._events: list[tuple[int, str, dict[str, Any]]] = []
        self._closed = False
        self._spares: list[tuple[str, WorkerProcess]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"api": self}))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def add_spares(self, count: int) -> None:
        """Starts pods of the warm pool."""
        self._spares += [self._new_pod() for _ in range(count)]

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for pod in (*self.pods.values(), *(pod for _, pod in self._spares)):
            pod.end()

    def create(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.posts += 1
        self.gate.wait()
        errors = [error.message for error in _CLAIM.iter_errors(body)]
        if errors:
            return 422, _failure(422, "; ".join(errors))
        name: str = body["metadata"]["name"]
        with self._changed:
            if name in self.claims:
                return 409, _failure(409, f"sandboxclaims {name!r} already exists")
            self.made.append(json.loads(json.dumps(body)))
            claim = self.claims[name] = {**body, "status": {}}
            claim["metadata"] = {**body["metadata"], "uid": f"uid-of-{name}"}
            content = self._publish("ADDED", claim)
        threading.Thread(target=self._control, args=(name,), daemon=True).start()
        return 201, content

    def delete(self, name: str) -> tuple[int, dict[str, Any]]:
        with self._changed:
            claim = self.claims.pop(name, None)
            if claim is None:
                return 404, _failure(404, f"sandboxclaims {name!r} not found")
            self.deleted.append(name)
            pod = self.pods.pop(name, None)
            self._publish("DELETED", claim)
        if pod is not None:
            pod.end()
        return 200, {"kind": "Status", "status": "Success"}

    def watch(self, name: str, version: int, seconds: float) -> Any:
        """Yields the events of a claim after a version."""
        end, at = time.monotonic() + seconds, 0
        while True:
            with self._changed:
                while at == len(self._events) and not self._closed:
                    if not self._changed.wait(end - time.monotonic()):
                        return
                if self._closed:
                    return
                events, at = self._events[at:], len(self._events)
            for number, kind, claim in events:
                if number > version and claim["metadata"]["name"] == name:
                    yield {"type": kind, "object": claim}

    def _control(self, name: str) -> None:
        """Does what the controller does for a new claim."""
        if self.condition is not None:
            status = {"conditions": [_condition("False", *self.condition)]}
        else:
            with self._changed:
                spare = self._spares.pop() if self._spares else None
            ip, pod = spare or self._new_pod()
            pod.address  # noqa: B018  # waits until it listens, as a readiness probe does
            with self._changed:
                if name not in self.claims or self._closed:
                    pod.end()
                    return
                self.pods[name] = pod
                self.made_ips.append(ip)
            status = {"conditions": [_condition("True", "Ready", "")], "sandbox": {"name": f"pod-{ip}", "podIPs": [ip]}}
        with self._changed:
            if name in self.claims:
                self.claims[name]["status"] = status
                self._publish("MODIFIED", self.claims[name])

    def start_pod(self, ip: str) -> WorkerProcess:
        options = ("--host", ip, "--port", str(self.port), "--tier", "none", "--one-owner", "--warm", "python")
        return WorkerProcess(*options, python=("-c", _WITHOUT_CAPABILITIES))

    def _new_pod(self) -> tuple[str, WorkerProcess]:
        ip = next(self._addresses)
        return ip, self.start_pod(ip)

    def _publish(self, kind: str, claim: dict[str, Any]) -> dict[str, Any]:
        version = next(self._versions)
        claim["metadata"]["resourceVersion"] = str(version)
        content = json.loads(json.dumps(claim))
        self._events.append((version, kind, content))
        self._changed.notify_all()
        return content


def _condition(status: str, reason: str, message: str) -> Mapping[str, str]:
    return {"type": "Ready", "status": status, "reason": reason, "message": message}


def _failure(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "code": code, "message": message}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: ApiServer

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        if self._refused(url.path):
            return
        if query.get("watch", "").lower() == "true":
            name = query["fieldSelector"].removeprefix("metadata.name=")
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                for event in self.api.watch(name, int(query["resourceVersion"]), float(query["timeoutSeconds"])):
                    line = json.dumps(event).encode() + b"\n"
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
                self.wfile.write(b"0\r\n\r\n")
            except OSError:
                self.close_connection = True
        elif (claim := self.api.claims.get(url.path.rpartition("/")[2])) is not None:
            self._answer(200, claim)
        else:
            self._answer(404, _failure(404, "sandboxclaims not found"))

    def do_POST(self) -> None:
        body = cast("dict[str, Any]", json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        if not self._refused(self.path):
            self._answer(*self.api.create(body))

    def do_DELETE(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = urlsplit(self.path).path
        if not self._refused(path):
            self._answer(*self.api.delete(path.rpartition("/")[2]))

    def _refused(self, path: str) -> bool:
        refusal = self.api.refusal
        if self.headers.get("Authorization") != TOKEN:
            refusal = 401, "Unauthorized"
        elif refusal is None and not path.startswith(_PATH):
            refusal = 404, "the server could not find the requested resource"
        if refusal is not None:
            self._answer(refusal[0], _failure(*refusal))
        return refusal is not None

    def _answer(self, code: int, content: Mapping[str, Any]) -> None:
        data = json.dumps(content).encode()
        try:
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        del format, args
