"""Connections to a target that the egress rules allow: its addresses are looked up and checked before gRPC has them."""

from __future__ import annotations

from ipaddress import IPv4Address, ip_address
from typing import Any
from urllib.parse import urlsplit

import anyio
import grpc
import grpc.aio

from corral.egress import EgressPolicy, Resolver
from corral.egress.addresses import read_host
from corral.egress.policy import blocked
from corral.errors import ConfigError, ToolError

_MAX_ADDRESSES = 20
_METADATA_BYTES = 65_536


class Target:
    """Host and port of a server.

    Raises:
        ConfigError: the text has no port, or more than both.
    """

    def __init__(self, target: str) -> None:
        try:
            parts = urlsplit(f"//{target}")
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if not host or not port or set("/@?#") & set(target):
            raise ConfigError(f"target={target!r:.200} is not host:port, such as 'api.example.com:443'")
        self.host = host
        self.port = port

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


async def connected(
    target: Target,
    policy: EgressPolicy,
    resolver: Resolver,
    *,
    credentials: grpc.ChannelCredentials | None,
    max_message_bytes: int,
    seconds: float,
) -> grpc.aio.Channel:
    """Makes a channel to the addresses of a target. It connects with its first call, to no other address.

    Raises:
        EgressBlocked: the policy does not allow the target, or one of its addresses.
        ToolError: the target has no address.
    """
    scheme = "http" if credentials is None else "https"
    if (reason := policy.objection(scheme, target.host, target.port)) is not None:
        raise blocked(target.host, reason)
    addresses = await _addresses(target, policy, resolver, seconds)
    family = "ipv4" if isinstance(addresses[0], IPv4Address) else "ipv6"
    same = [each for each in addresses if type(each) is type(addresses[0])]
    joined = ",".join(f"{each}:{target.port}" if family == "ipv4" else f"[{each}]:{target.port}" for each in same)
    options: list[tuple[str, Any]] = [
        ("grpc.default_authority", target.authority),
        ("grpc.enable_http_proxy", 0),  # a proxy would look the name up again
        ("grpc.enable_retries", 0),
        ("grpc.service_config_disable_resolution", 1),
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_metadata_size", _METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", _METADATA_BYTES),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if credentials is None:
        return grpc.aio.insecure_channel(f"{family}:{joined}", options)
    return grpc.aio.secure_channel(
        f"{family}:{joined}", credentials, [*options, ("grpc.ssl_target_name_override", target.host)]
    )


async def _addresses(target: Target, policy: EgressPolicy, resolver: Resolver, seconds: float) -> list[Any]:
    host = read_host(target.host)
    if not isinstance(host, str):
        return [host]
    try:
        with anyio.fail_after(seconds):
            found = [ip_address(each) for each in await resolver(host)]
    except (OSError, TimeoutError):
        raise ToolError(f"{host} cannot be resolved") from None
    if not found:
        raise ToolError(f"{host} has no address")
    if len(found) > _MAX_ADDRESSES or not all(policy.allows(each) for each in found):
        raise blocked(target.host, "it resolves to an address that is not public, or to too many")
    return found
