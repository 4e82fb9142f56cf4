"""Guarded connections: a name is resolved once, all of its addresses are checked, and a checked one is dialled."""

from __future__ import annotations

import math
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import ip_address
from typing import Any, TypeAlias, cast

import anyio
import httpcore

from corral.concurrency.threads import run_in_own_thread
from corral.egress.addresses import Address, read_host
from corral.egress.policy import EgressPolicy, blocked, too_large, too_late
from corral.logs import get_logger

Resolver: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]
"""Function that returns the IPv4 and IPv6 addresses of a name, best first. Raises `OSError` if the name has none."""


class SystemResolver:
    """The default resolver of a client: the system's `getaddrinfo`.

    Lookups cannot be interrupted. An abandoned one keeps counting until it has ended.
    """

    def __init__(self, places: int) -> None:
        self._count = places
        self._places = threading.BoundedSemaphore(places)

    async def __call__(self, host: str) -> list[str]:
        """Returns the addresses of `host`.

        Raises:
            OSError: the name has none. httpcore.ConnectTimeout: too many lookups are running.
        """
        # Counted here because anyio's limiter ignores abandoned threads.
        return await run_in_own_thread(self._look_up, host, abandon_on_cancel=True)

    def _look_up(self, host: str) -> list[str]:
        if not self._places.acquire(blocking=False):
            raise httpcore.ConnectTimeout(f"{host} was not resolved: {self._count} other lookups have not ended yet")
        try:
            infos = socket.getaddrinfo(host.encode("ascii"), None, type=socket.SOCK_STREAM)
        finally:
            self._places.release()
        addresses = [sockaddr[0] for *_, sockaddr in infos]
        # a Python without IPv6 returns no string for such addresses
        return list(dict.fromkeys(address for address in addresses if isinstance(address, str)))


# --- connections --------------------------------------------------------------------------------------------

logger = get_logger("corral.egress")

_ANSWERS = 64
"""Maximum number of addresses that a name may resolve to."""
_DIALLED = 4
"""Maximum number of addresses to try."""


async def allowed_addresses(
    host: str, policy: EgressPolicy, resolver: Resolver, timeout: float | None
) -> list[Address]:
    """Resolves a name within `timeout` seconds. Returns its addresses, all of which the policy allows.

    Raises:
        EgressBlocked: one of them is not allowed, or there are too many.
        httpcore.ConnectError: the name does not exist, or has no address. httpcore.ConnectTimeout: time is up.
    """
    target = read_host(host)
    if not isinstance(target, str):
        addresses = [target]
    else:
        try:
            with anyio.fail_after(timeout):
                answer = await resolver(target)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(f"{target} was not resolved in {timeout} s") from error
        except OSError as error:
            raise httpcore.ConnectError(f"{target} cannot be resolved") from error
        if len(answer) > _ANSWERS:
            raise blocked(host, f"it resolves to more than {_ANSWERS} addresses")
        addresses = [ip_address(each) for each in answer]
    if not addresses:
        raise httpcore.ConnectError(f"{host} has no address")
    if inward := [address for address in addresses if not policy.allows(address)]:
        logger.warning("%r is blocked: it resolves to %s", host[:100], ", ".join(map(str, inward)))
        raise blocked(host, "it resolves to an address that is not public")
    return addresses


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Connects only to addresses that the policy allows.

    The transport has checked the URL. TLS verifies the server's name as always.
    """

    def __init__(self, policy: EgressPolicy, resolver: Resolver) -> None:
        self._policy = policy
        self._resolver = resolver
        self._network = cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Dials the addresses of `host` in order until one answers.

        `timeout`, in seconds, applies to the lookup, and again to all connection attempts together.

        Raises:
            EgressBlocked: one of its addresses is not allowed.
            httpcore.ConnectError: the name does not exist, or no address answers.
            httpcore.ConnectTimeout: time is up.
        """
        addresses = (await allowed_addresses(host, self._policy, self._resolver, timeout))[:_DIALLED]
        share = None if timeout is None else timeout / len(addresses)
        failure: Exception | None = None
        for address in addresses:
            try:
                stream = await self._network.connect_tcp(str(address), port, share, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
            else:
                return BoundedStream(stream, host, self._policy)
        assert failure is not None
        raise failure


class BoundedStream(httpcore.AsyncNetworkStream):
    """Connection with limits on responses: the size of a head after each request, then of a body, with a deadline."""

    def __init__(self, stream: httpcore.AsyncNetworkStream, host: str, policy: EgressPolicy) -> None:
        self._stream = stream
        self._host = host
        self._policy = policy
        self._left = 0
        self._over: Exception = blocked(host, "it sent data before a request")
        self._deadline = math.inf

    def expect_body(self, deadline: float) -> None:
        """Sets the limits for a body, once the head has been read. What is left of the head's bytes is for the body's
        framing."""
        self._left += self._policy.max_response_bytes
        self._over = too_large(self._host, self._policy)
        self._deadline = deadline

    def switched(self) -> httpcore.AsyncNetworkStream:
        """Returns the unlimited connection, for use after the server has switched protocols."""
        return self._stream

    def fail(self, error: Exception) -> None:
        """Makes the next read of this response raise `error`, upon which httpcore closes the connection."""
        self._left = 0
        self._over = error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Sends part of a request, and expects a head next. Until that is read, the caller enforces the deadline."""
        self._left = self._policy.max_header_bytes
        self._over = blocked(self._host, f"the head is larger than max_header_bytes={self._policy.max_header_bytes}")
        self._deadline = math.inf
        await self._stream.write(buffer, timeout)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Reads available bytes, up to the limit. Raises EgressBlocked if the limit or the deadline is exceeded."""
        if self._left == 0:
            raise self._over
        with anyio.CancelScope(deadline=self._deadline):
            data = await self._stream.read(min(max_bytes, self._left), timeout)
            self._left -= len(data)
            return data
        raise too_late(self._host, self._policy)

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        """Starts TLS. The same limits then apply to the decrypted data."""
        stream = await self._stream.start_tls(ssl_context, server_hostname, timeout)
        return BoundedStream(stream, self._host, self._policy)

    def get_extra_info(self, info: str) -> Any:
        """Returns information from the underlying connection."""
        return self._stream.get_extra_info(info)

    async def aclose(self) -> None:
        await self._stream.aclose()
