"""Bridge protocols of a Corral: opened and closed with it, and selected for each sandbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from corral.bridges.base import BridgeHost, BridgeProtocol
from corral.errors import ConfigError, CorralError
from corral.logs import get_logger
from corral.plugins import load_by_name

logger = get_logger("corral.bridges")

Bridges: TypeAlias = str | BridgeProtocol | Sequence[str | BridgeProtocol]
"""One or more bridge protocols or their names, in order of preference."""


class Protocols:
    """Bridge protocols of one Corral.

    Raises:
        UnknownProvider: no protocol has that name.
        ConfigError: no protocol was passed, or two have the same name.
    """

    def __init__(self, bridges: Bridges, host: BridgeHost) -> None:
        protocols = [bridges] if isinstance(bridges, str | BridgeProtocol) else bridges
        self._protocols = [_made(each) for each in protocols]
        self._opened: list[BridgeProtocol] = []
        self.host = host
        names = [each.name for each in self._protocols]
        if not names:
            raise ConfigError("Corral(bridge=...) is empty, so programs cannot call tools; leave out `bridge`")
        if doubled := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError(f"two bridges have the name {doubled[0]!r}; leave one out")

    def copy(self) -> Protocols:
        """Returns the same protocols, unopened."""
        return Protocols(self._protocols, self.host)

    def supported_by(self, sandbox: str, bridges: frozenset[str]) -> BridgeProtocol:
        """Returns the first protocol in `bridges`, the names that a sandbox's guests support.

        Raises:
            ConfigError: no protocol is supported.
        """
        for each in self._protocols:
            if each.name in bridges:
                return each
        names = " or ".join(repr(each.name) for each in self._protocols)
        supported = " and ".join(map(repr, sorted(bridges)))
        raise ConfigError(
            f"sandbox {sandbox!r} does not support the bridge {names}; pass a bridge that it supports to "
            f"Corral(bridge=...): {supported}"
        )

    def mounted(self, protocol: str | BridgeProtocol | None) -> BridgeProtocol:
        """Returns the protocol to mount in a web server: by default the first one that can be mounted, else
        `HttpBridge()`.

        Raises:
            UnknownProvider: no protocol has that name.
        """
        if isinstance(protocol, str):
            own = [each for each in self._protocols if each.name == protocol]
            return own[0] if own else _made(protocol)
        if protocol is not None:
            return protocol
        others = [each for each in self._protocols if each.name != "pipe"]
        mountable = [each for each in others if type(each).asgi_app is not BridgeProtocol.asgi_app]
        return next(iter(mountable or others), None) or _made("http")

    async def open(self) -> None:
        """Joins the peers and opens the protocols, one after another. `aclose` closes them, also after a failure.

        Raises:
            CorralError: a protocol cannot be opened.
        """
        if self.host.peers is not None:
            await self.host.peers.open()
        for each in self._protocols:
            self._opened.append(each)
            try:
                await each.open(self.host)
            except CorralError:
                raise
            except Exception as error:
                reason = str(error) or type(error).__name__
                raise ConfigError(f"the bridge {each.name!r} cannot be opened: {reason}") from error

    async def aclose(self) -> None:
        """Closes the protocols in reverse order, and leaves the peers. Failures are logged. Idempotent."""
        while self._opened:
            closing = self._opened.pop()
            try:
                await closing.aclose()
            except Exception:
                logger.exception("the bridge %r did not close", closing.name)
        if self.host.peers is not None:
            await self.host.peers.aclose()


def _made(bridge: str | BridgeProtocol) -> BridgeProtocol:
    return bridge if isinstance(bridge, BridgeProtocol) else load_by_name("corral.bridges", bridge)
