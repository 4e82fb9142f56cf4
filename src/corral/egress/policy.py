"""Policy for outbound requests: hosts, ports, addresses, and sizes of responses."""

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
    """A pattern as hosts are compared with it.

    Raises:
        ValueError: it is none; the text says why.
    """
    if not isinstance(pattern, str):
        raise ValueError(f"{pattern!r:.100} is not a name")
    shown = f"{pattern!r:.100}"
    wildcard, name = ("*.", pattern[2:]) if pattern.startswith("*.") else ("", pattern)
    if "://" in name or "/" in name or _PORT.search(name):
        raise ValueError(f"{shown} has more than a host: schemes and ports are options of their own, and paths are not")
    if "*" in name:
        raise ValueError(f"{shown} has a * that is not the whole first label, as in *.example.com")
    try:
        ascii_name = name if name.isascii() else idna.encode(name, uts46=True).decode()
        host = read_host(ascii_name.strip("[]"))
    except ValueError:
        raise ValueError(f"{shown} is neither a host nor *. and a name") from None
    if not wildcard:
        return str(host)
    if not isinstance(host, str):
        raise ValueError(f"{shown} is a * before an address; networks cannot be listed, but addresses")
    if is_internal_name(f"x.{host}"):  # nobody can have one but who runs the network
        return wildcard + host
    if (suffix := _open_suffix(host)) is not None:
        raise ValueError(f"{shown} covers names that anybody may have, below {suffix}; list the names that are meant")
    return wildcard + host


class EgressPolicy(Frozen):
    """Limits of a `SafeClient`. Every limit is positive and in force.

    Over a limit, and for a target that is not allowed, requests and reads raise `EgressBlocked`.
    """

    hosts: Annotated[frozenset[str], BeforeValidator(_hosts)] | None = None
    """Names ("api.example.com"), names below one ("*.example.com", not example.com itself) and addresses that may be
    asked. None: all public ones. Empty: nothing. A name that is listed may be an internal one; what it resolves to is
    checked all the same. Below names where anybody may have one ("*.com", "*.github.io") not all can be listed."""
    ports: frozenset[int] = frozenset({80, 443})
    schemes: frozenset[Literal["http", "https"]] = frozenset({"http", "https"})
    exempt_networks: tuple[IPv4Network | IPv6Network, ...] = ()
    """Networks that count as public, such as "10.1.2.3/32" for one service of your own."""
    max_response_bytes: Positive = 10_000_000
    """One response's body, decoded; and what is read from the connection for it."""
    max_header_bytes: Positive = 64_000
    """One response's head, with all interim responses before it."""
    max_redirects: Annotated[int, Field(ge=0)] = 5
    total_seconds: PositiveSeconds = 30.0
    """From `send` to the last byte of the body, with lookups, redirects, and the time that your code takes to read."""
    max_connections: Positive = 20
    """Open at the same time; further requests wait, for as long as their `timeout` lets them."""

    if TYPE_CHECKING:  # networks may be written as text, and all collections as any iterable

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
        """The reason to refuse a URL, as far as it shows without a lookup; None to allow it."""
        if scheme not in self.schemes:
            return f"the scheme is not one of {', '.join(sorted(self.schemes))}"
        try:
            target = read_host(host)
        except ValueError as error:
            return str(error)
        if self.hosts is not None and not self._lists(str(target)):
            return "it is not in EgressPolicy.hosts"
        if self.hosts is None and isinstance(target, str) and is_internal_name(target):
            return "it is a name of an internal host"
        if (port if port is not None else {"http": 80, "https": 443}[scheme]) not in self.ports:
            return f"the port is not one of {', '.join(map(str, sorted(self.ports)))}"
        if not isinstance(target, str) and not self.allows(target):
            return "the address is not public"
        return None

    def allows(self, address: Address) -> bool:
        """True if connections may be made to this address."""
        return is_public(address) or any(address in network for network in self.exempt_networks)

    def _lists(self, host: str) -> bool:
        labels = host.split(".")
        parents = {"*." + ".".join(labels[start:]) for start in range(1, len(labels))}
        return self.hosts is not None and not self.hosts.isdisjoint({host, *parents})


def service_policy(url: str, *, max_response_bytes: int, total_seconds: float) -> EgressPolicy:
    """Makes the policy for the one service at a URL that the host's own settings name: it may be an internal one.

    Raises:
        ConfigError: there is no host in the URL.
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
    """The error for a program, which may be hostile: it has the host as written and the rule, never an address."""
    return EgressBlocked(f"egress to {host[:100]!r} blocked: {reason}")


def too_large(host: str, policy: EgressPolicy) -> EgressBlocked:
    """The error for a body, as it is sent or as it is decoded."""
    error = blocked(host, f"the body is larger than max_response_bytes={policy.max_response_bytes}")
    error.outcome_known = False
    return error


def too_late(host: str, policy: EgressPolicy) -> EgressBlocked:
    """The error for a request that is not over in time."""
    error = blocked(host, f"it took longer than total_seconds={policy.total_seconds}")
    error.outcome_known = False
    return error


# --- names below which anybody may have one -----------------------------------------------------------------


def _open_suffix(name: str) -> str | None:
    """The public suffix that a name is, or the first that is below it; None if there is none.

    `name` is ASCII, in lower case. A top-level name that the list does not know counts as a suffix.
    """
    if _suffixes().is_public(name):
        return name
    return next((each for each in _listed() if each.endswith(f".{name}")), None)


@cache
def _suffixes() -> PublicSuffixList:
    """Takes tens of milliseconds to make, so it is made for who needs it."""
    return PublicSuffixList()


@cache
def _listed() -> Sequence[str]:
    """The suffixes themselves, without rules that make exceptions of others."""
    text = (files("publicsuffixlist") / "public_suffix_list.dat").read_text(encoding="utf-8")
    rules = (line.split()[0] for line in text.splitlines() if line and not line.startswith(("//", "!")))
    return [rule.removeprefix("*.") for rule in rules]
