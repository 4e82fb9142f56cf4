"""Policy for outbound requests: hosts, ports, addresses, and response sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from ipaddress import IPv4Network, IPv6Network
from typing import TYPE_CHECKING, Annotated, Literal, cast
from urllib.parse import urlsplit

import idna
from publicsuffixlist import PublicSuffixList
from pydantic import BeforeValidator, Field

from corral.egress.addresses import Address, is_internal_name, is_public, read_host
from corral.errors import EgressBlocked
from corral.types import Frozen, Positive, PositiveSeconds

ANY_NETWORK = ("0.0.0.0/0", "::/0")
_PORTS = {"http": 80, "https": 443}

_PORT = re.compile(r"^[^:]*:\d+$|\]:\d+$")


def _hosts(value: object) -> object:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ValueError('hosts must be a collection of names, such as ["api.example.com"]')
    return frozenset(_host(each) for each in cast("Iterable[object]", value))


def _host(pattern: object) -> str:
    """Normalizes a host pattern.

    Raises:
        ValueError: it is invalid; the message has the reason.
    """
    if not isinstance(pattern, str):
        raise ValueError(f"{pattern!r:.100} is not a name")
    shown = f"{pattern!r:.100}"
    wildcard, name = ("*.", pattern[2:]) if pattern.startswith("*.") else ("", pattern)
    if "://" in name or "/" in name or _PORT.search(name):
        raise ValueError(f"{shown} must be a host only: use the options for schemes and ports; paths cannot be listed")
    if "*" in name:
        raise ValueError(f"{shown}: a * must be the whole first label, as in *.example.com")
    try:
        ascii_name = name if name.isascii() else idna.encode(name, uts46=True).decode()
        host = read_host(ascii_name.strip("[]"))
    except ValueError:
        raise ValueError(f"{shown} is neither a host nor '*.' with a name") from None
    if not wildcard:
        return str(host)
    if not isinstance(host, str):
        raise ValueError(f"{shown} has a * before an address; list each address, because networks cannot be listed")
    if is_internal_name(f"x.{host}"):  # only the operator of the network can assign one
        return wildcard + host
    if (suffix := _open_suffix(host)) is not None:
        raise ValueError(f"{shown} covers names that anyone can register, below {suffix}; list each name")
    return wildcard + host


class EgressPolicy(Frozen):
    """Limits of a `SafeClient`. All limits have defaults; none can be disabled.

    Requests and reads raise `EgressBlocked` beyond a limit, and for targets that are not allowed.
    """

    hosts: Annotated[frozenset[str], BeforeValidator(_hosts)] | None = None
    """Allowed hosts: names ("api.example.com"), all names below one ("*.example.com", without example.com itself) and
    addresses. None allows all public hosts, an empty list none. A listed name may be internal, but its addresses are
    still checked. Wildcards below public suffixes ("*.com", "*.github.io") are refused."""
    ports: frozenset[int] = frozenset({80, 443})
    schemes: frozenset[Literal["http", "https"]] = frozenset({"http", "https"})
    exempt_networks: tuple[IPv4Network | IPv6Network, ...] = ()
    """Networks that count as public, such as "10.1.2.3/32" for an internal service."""
    max_response_bytes: Positive = 10_000_000
    """Maximum size of a response's body, both decoded and on the wire."""
    max_header_bytes: Positive = 64_000
    """Maximum size of a response's head, including interim responses."""
    max_redirects: Annotated[int, Field(ge=0)] = 5
    total_seconds: PositiveSeconds = 30.0
    """Seconds from `send` to the last byte of the body, including lookups, redirects, and your code that reads the
    body."""
    max_connections: Positive = 20
    """Maximum number of open connections. Further requests wait, up to their `timeout`."""

    if TYPE_CHECKING:  # networks may be text, and collections any iterable

        def __init__(
            self,
            *,
            hosts: Iterable[str] | None = ...,
            ports: Iterable[int] = ...,
            schemes: Iterable[str] = ...,
            exempt_networks: Iterable[str | IPv4Network | IPv6Network] = ...,
            max_response_bytes: int = ...,
            max_header_bytes: int = ...,
            max_redirects: int = ...,
            total_seconds: float = ...,
            max_connections: int = ...,
        ) -> None: ...

    def objection(self, scheme: str, host: str, port: int | None) -> str | None:
        """Returns the reason to refuse a URL, or None to allow it. Looks nothing up."""
        if scheme not in self.schemes:
            return f"the scheme is not one of {', '.join(sorted(self.schemes))}"
        try:
            target = read_host(host)
        except ValueError as error:
            return str(error)
        if self.hosts is not None and not self._lists(str(target)):
            return "it is not in EgressPolicy.hosts"
        if self.hosts is None and isinstance(target, str) and is_internal_name(target):
            return "it is the name of an internal host"
        if (port if port is not None else {"http": 80, "https": 443}[scheme]) not in self.ports:
            return f"the port is not one of {', '.join(map(str, sorted(self.ports)))}"
        if not isinstance(target, str) and not self.allows(target):
            return "the address is not public"
        return None

    def allows(self, address: Address) -> bool:
        """True if connections to this address are allowed."""
        return is_public(address) or any(address in network for network in self.exempt_networks)

    def _lists(self, host: str) -> bool:
        labels = host.split(".")
        parents = {"*." + ".".join(labels[start:]) for start in range(1, len(labels))}
        return self.hosts is not None and not self.hosts.isdisjoint({host, *parents})


def service_policy(url: str, *, max_response_bytes: int, total_seconds: float) -> EgressPolicy:
    """Makes the policy for a service whose URL is in the host's settings, and which may be internal.

    Raises:
        ConfigError: the URL has no host.
    """
    parts = urlsplit(url)
    scheme: Literal["http", "https"] = "http" if parts.scheme == "http" else "https"
    return EgressPolicy(
        hosts={parts.hostname or ""},
        ports={parts.port or _PORTS[scheme]},
        schemes={scheme},
        exempt_networks=ANY_NETWORK,
        max_response_bytes=max_response_bytes,
        total_seconds=total_seconds,
    )


def blocked(host: str, reason: str) -> EgressBlocked:
    """Makes the error for a program, which may be hostile: it has the host as written and the rule, never an
    address."""
    return EgressBlocked(f"egress to {host[:100]!r} blocked: {reason}")


def too_large(host: str, policy: EgressPolicy) -> EgressBlocked:
    """Makes the error for a body that is too large, as sent or decoded."""
    error = blocked(host, f"the body is larger than max_response_bytes={policy.max_response_bytes}")
    error.outcome_known = False
    return error


def too_late(host: str, policy: EgressPolicy) -> EgressBlocked:
    """Makes the error for a request that takes too long."""
    error = blocked(host, f"it took longer than total_seconds={policy.total_seconds}")
    error.outcome_known = False
    return error


# --- public suffixes ----------------------------------------------------------------------------------------


def _open_suffix(name: str) -> str | None:
    """Returns the name if it is a public suffix, or the first public suffix below it; None if neither exists.

    `name` is ASCII, in lower case. An unlisted top-level name counts as a suffix.
    """
    if _suffixes().is_public(name):
        return name
    return next((each for each in _listed() if each.endswith(f".{name}")), None)


@cache
def _suffixes() -> PublicSuffixList:
    """Loaded on demand, because that takes tens of milliseconds."""
    return PublicSuffixList()


@cache
def _listed() -> Sequence[str]:
    """Returns the listed suffixes without the exception rules."""
    text = (files("publicsuffixlist") / "public_suffix_list.dat").read_text(encoding="utf-8")
    rules = (line.split()[0] for line in text.splitlines() if line and not line.startswith(("//", "!")))
    return [rule.removeprefix("*.") for rule in rules]
