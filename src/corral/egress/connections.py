"""The seam where connections are made: names are resolved once, every address of the answer is checked, and a checked
one is dialled. What comes back is counted as it is read."""

from __future__ import annotations

import math
import ssl
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any, cast

import anyio
import httpcore

from corral.egress.addresses import Address, read_host
from corral.egress.lookups import Resolver
from corral.egress.policy import EgressPolicy, blocked, too_large, too_late
from corral.logs import get_logger

logger = get_logger("corral.egress")

_ANSWERS = 64
"""Addresses that an answer may have."""
_DIALLED = 4
"""Addresses that are tried."""


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Makes connections to addresses that the policy allows, and to no others.

    The transport has checked the URL; that the name is right, is the caller's concern (TLS checks it as always).
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
        """Dials the addresses of `host` in order until one answers. `timeout` is in seconds, once for the lookup and
        once for all attempts.

        Raises:
            EgressBlocked: one of its addresses is not allowed.
            httpcore.ConnectError: no such name, or no address answers.
            httpcore.ConnectTimeout: not in time.
        """
        addresses = (await self._addresses(host, timeout))[:_DIALLED]
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

    async def _addresses(self, host: str, timeout: float | None) -> list[Address]:
        target = read_host(host)
        if not isinstance(target, str):
            found = [target]
        else:
            try:
                with anyio.fail_after(timeout):
                    answer = await self._resolver(target)
            except TimeoutError as error:
                raise httpcore.ConnectTimeout(f"{target} was not resolved in {timeout} s") from error
            except OSError as error:
                raise httpcore.ConnectError(f"{target} cannot be resolved") from error
            if len(answer) > _ANSWERS:
                raise blocked(host, f"it resolves to more than {_ANSWERS} addresses")
            found = [ip_address(each) for each in answer]
        if not found:
            raise httpcore.ConnectError(f"{host} has no address")
        if inward := [address for address in found if not self._policy.allows(address)]:
            logger.warning("%r is blocked: it resolves to %s", host[:100], ", ".join(map(str, inward)))
            raise blocked(host, "it resolves to an address that is not public")
        return found


class BoundedStream(httpcore.AsyncNetworkStream):
    """A connection that bounds what a server sends: a head after each request, then a body by a deadline."""

    def __init__(self, stream: httpcore.AsyncNetworkStream, host: str, policy: EgressPolicy) -> None:
        self._stream = stream
        self._host = host
        self._policy = policy
        self._left = 0
        self._over: Exception = blocked(host, "it sent something before it was asked")
        self._deadline = math.inf

    def expect_body(self, deadline: float) -> None:
        """The head was read; what is left of its bytes pays for the framing of the body. `deadline` is on the event
        loop's clock."""
        self._left += self._policy.max_response_bytes
        self._over = too_large(self._host, self._policy)
        self._deadline = deadline

    def switched(self) -> httpcore.AsyncNetworkStream:
        """The connection after its server has switched to another protocol: who reads from it bounds what comes."""
        return self._stream

    def fail(self, error: Exception) -> None:
        """Lets the next read of this response raise `error`, so that httpcore ends it in its own way and hangs up."""
        self._left = 0
        self._over = error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Sends a part of a request, after which a head may come. Until then the caller holds the deadline."""
        self._left = self._policy.max_header_bytes
        self._over = blocked(self._host, f"the head is larger than max_header_bytes={self._policy.max_header_bytes}")
        self._deadline = math.inf
        await self._stream.write(buffer, timeout)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Reads what there is, no more than is still allowed.

        Raises:
            EgressBlocked: too much, or too late.
        """
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
        """The same bounds for what comes out of TLS."""
        stream = await self._stream.start_tls(ssl_context, server_hostname, timeout)
        return BoundedStream(stream, self._host, self._policy)

    def get_extra_info(self, info: str) -> Any:
        """Information from the connection below."""
        return self._stream.get_extra_info(info)

    async def aclose(self) -> None:
        """Closes the connection."""
        await self._stream.aclose()
