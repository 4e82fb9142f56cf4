"""Base URLs of the operations of a document."""

from __future__ import annotations

import re
from collections.abc import Iterable

import httpx

from corral.egress import EgressPolicy
from corral.errors import ConfigError
from corral.sources.openapi.documents import DocumentNode, Unusable


def origin_of(url: httpx.URL) -> tuple[str, str, int]:
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}[url.scheme]


class Servers:
    """The base URL of a document, and the origins that its operations may be at.

    Raises:
        ConfigError: there is no base URL, or one of the URLs is none.
    """

    def __init__(self, document: DocumentNode, base_url: str | None, origins: Iterable[str]) -> None:
        self.is_given = base_url is not None
        """True if the host gave the base URL, rather than the document."""
        try:
            self._stated = _first(document)
        except Unusable as problem:
            if base_url is None:
                raise ConfigError(f"the document's server cannot be used; give base_url. {problem}") from None
            self._stated = ""
        said = base_url if base_url is not None else self._stated
        if not said or "://" not in said:
            where = f"the document's server is {said[:100]!r}" if said else "the document names no server"
            if base_url is not None:
                raise ConfigError(f"base_url={said[:100]!r} needs http:// or https:// and a host")
            raise ConfigError(f"{where}: give base_url, such as 'https://api.example.com/v1'")
        self.base = _url(said)
        self.origins = {origin_of(self.base), *(origin_of(_url(each)) for each in origins)}

    def require_reachable(self) -> None:
        """Raises ConfigError if the document itself says that the API is at an internal address."""
        scheme, _, port = origin_of(self.base)
        policy = EgressPolicy(schemes={scheme}, ports={port})
        objection = policy.objection(scheme, self.base.raw_host.decode("ascii"), port)
        if objection and not self.is_given:
            raise ConfigError(
                f"the document's server is {self._stated[:100]!r}, and {objection}; to allow that, give it as base_url"
            )

    def of(self, item: DocumentNode, operation: DocumentNode) -> httpx.URL:
        """The base URL of one operation, which may have a server of its own. Raises Unusable."""
        said = _first(operation) or _first(item)
        if not said:
            return self.base
        try:
            url = self._here(said) or _url(str(self.base.join(said)))
        except (ConfigError, httpx.InvalidURL):
            raise operation.refused(f"its server {said[:100]!r} is no URL") from None
        if origin_of(url) not in self.origins:
            raise operation.refused(f"it is at {said[:100]!r}; give origins=[...] to allow that")
        return url

    def _here(self, said: str) -> httpx.URL | None:
        """The URL of another server, moved as the document's own server was moved to the base URL."""
        stated, url = httpx.URL(self._stated), httpx.URL(said)
        if not url.host or (url.host, url.port) != (stated.host, stated.port):
            return None
        return self.base if url.path.rstrip("/") == stated.path.rstrip("/") else self.base.copy_with(path=url.path)


def _first(part: DocumentNode) -> str:
    """The URL of the first server, with the defaults of its variables; "" if there is none. Raises Unusable."""
    servers = part.member("servers")
    found = servers.items() if servers else []
    if not found:
        return ""
    [server, *_] = found
    variables = server.member("variables")
    values = {name: each.text("default") for name, each in variables.members()} if variables else {}

    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise server.refused(f"its variable {match[1][:50]!r} has no default")
        return values[match[1]]

    return re.sub(r"\{([^{}]*)\}", value, server.text("url"))


def _url(text: str) -> httpx.URL:
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, ValueError):
        raise ConfigError(f"{text[:100]!r} is not a URL") from None
    if url.scheme not in ("http", "https") or not url.host or url.userinfo or url.query or url.fragment:
        raise ConfigError(f"a base URL is http or https, with a host, without user, query and fragment: {text[:100]!r}")
    return url
