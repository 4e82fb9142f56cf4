"""Network of commands: a listener that only they can reach, and the environment that points programs to it."""

from __future__ import annotations

import socket
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

from corral.audit import AuditLog
from corral.types import ExecutionContext

PORT = 3128
CERTIFICATE = "session-ca.pem"
"""File in /etc with the certificate of the session's authority."""


@runtime_checkable
class CommandNetwork(Protocol):
    """Network for commands of a shell, such as a `corral.egress.Network`."""

    @property
    def origins(self) -> tuple[str, ...]:
        """Origins that commands can reach. If empty, they have no network."""
        ...

    def serve_commands(
        self, listener: socket.socket, context: ExecutionContext, audit: AuditLog | None, /
    ) -> AbstractAsyncContextManager[bytes]:
        """Serves a proxy on the listener until the end of the block; yields the certificate to trust."""
        ...


def proxy_environment() -> dict[str, str]:
    """Returns variables by which curl, git, pip, npm, Python and others find the proxy and trust its certificates."""
    proxy, local, certificate = f"http://127.0.0.1:{PORT}", "localhost,127.0.0.1,::1", f"/etc/{CERTIFICATE}"
    variables = {"NODE_USE_ENV_PROXY": "1"}
    for name, value in (("http_proxy", proxy), ("https_proxy", proxy), ("all_proxy", proxy), ("no_proxy", local)):
        variables |= {name: value, name.upper(): value}
    trusting = (
        "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT", "NODE_EXTRA_CA_CERTS",
        "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE", "DENO_CERT",
    )  # fmt: skip
    return variables | dict.fromkeys(trusting, certificate)
