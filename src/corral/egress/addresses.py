"""Parses hosts of URLs, and decides which addresses are public: globally routable unicast.

The tables are our own, because those of `ipaddress` differ between Python releases and treat some non-global addresses
as global.
"""

from __future__ import annotations

import re
import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address

_SPECIAL_V4 = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by carriers; 100.100.100.200 is Alibaba's metadata
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # Azure's host agent
        "169.254.0.0/16",  # link-local; metadata of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments; 192.0.0.192 is Oracle's older metadata
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # multicast tunnels
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarking
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
"""Source: IANA IPv4 Special-Purpose Address Registry, and the clouds' documentation."""

_GLOBAL_V6 = IPv6Network("2000::/3")
"""The range assigned as global unicast. Outside it are mapped, compatible, translated (SIIT, NAT64), unique local,
link-local, site-local and multicast addresses."""
_SPECIAL_V6 = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments: Teredo, benchmarking, ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "2620:4f:8000::/48",  # AS112
        "3ffe::/16",  # 6bone, returned
        "3fff::/20",  # documentation
    )
)
"""Source: IANA IPv6 Special-Purpose Address Registry."""

_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
_INTERNAL = "localhost local localdomain internal intranet private corp home lan svc home.arpa".split()


def is_public(address: Address) -> bool:
    """True for globally routable unicast addresses."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_V4)
    isatap = (int(address) >> 32) & 0xFDFF_FFFF == 0x0000_5EFE  # an IPv4 tunnel, RFC 5214
    return (
        address.scope_id is None
        and not isatap
        and address in _GLOBAL_V6
        and not any(address in network for network in _SPECIAL_V6)
    )


def read_host(host: str) -> Address | str:
    """Parses a URL's host (ASCII, without brackets) as an address in any notation, or else as a name, without its final
    dot.

    Raises:
        ValueError: the host is neither; the message has the reason.
    """
    host = host.lower()
    if "%" in host:
        raise ValueError("the host contains an escape or a zone")
    if ":" in host:
        return IPv6Address(host)
    host = host.removesuffix(".")
    if not _NAME.fullmatch(host):
        raise ValueError("the host is neither a name nor an address")
    if _NUMBER.fullmatch(host.rpartition(".")[2]):
        try:
            return IPv4Address(socket.inet_aton(host))
        except OSError:
            raise ValueError("the host looks like an IP address but is not a valid one") from None
    return host


def is_internal_name(name: str) -> bool:
    """True if a name, as returned by `read_host`, cannot be in the public DNS."""
    return "." not in name or any(name == suffix or name.endswith(f".{suffix}") for suffix in _INTERNAL)
