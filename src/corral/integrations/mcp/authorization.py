"""Tokens for an MCP server over HTTP: one for all clients, or tokens of an OAuth issuer.

The server is a resource server as MCP specifies it: it publishes metadata according to RFC 9728, and answers requests
without a valid token with 401 and the address of that metadata. The issuer's keys come from its own metadata, according
to RFC 8414.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Iterable
from typing import Any, cast
from urllib.parse import urlsplit

import anyio
import httpx
import jwt
from mcp.server import ServerRequestContext
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from pydantic_core import from_json
from starlette.requests import Request

from corral.egress import SafeClient
from corral.egress.policy import service_policy
from corral.errors import ConfigError, EgressBlocked
from corral.logs import get_logger

logger = get_logger("corral")

_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Only algorithms with public keys. If a public key were accepted as a shared secret, anyone could sign tokens."""
_TOKEN_CHARS = 8_192
_LEAST_SECRET_CHARS = 32
_METADATA_BYTES = 256_000
_FETCH_SECONDS = 10.0
_KEYS_SECONDS = 600.0
"""Seconds after which keys are fetched again."""
_AGAIN_SECONDS = 30.0
"""Minimum seconds between two attempts, however many tokens arrive."""
_LEEWAY_SECONDS = 30


class OneToken:
    """Verifies one token shared by all clients.

    Raises:
        ConfigError: the token is shorter than 32 characters.
    """

    def __init__(self, token: str) -> None:
        if len(token) < _LEAST_SECRET_CHARS:
            raise ConfigError(
                f"the token for clients (CORRAL_MCP_TOKEN) is shorter than {_LEAST_SECRET_CHARS} characters; "
                "`openssl rand -hex 32` prints one of 64"
            )
        self._token = token.encode()

    async def verify_token(self, token: str) -> AccessToken | None:
        """Returns the access that a valid token gives."""
        good = hmac.compare_digest(token.encode(errors="replace"), self._token)
        return AccessToken(token=token, client_id="token", scopes=[]) if good else None

    def settings(self, url: str) -> AuthSettings:
        """Makes the SDK's settings. A shared token has no issuer, so there is no metadata."""
        return AuthSettings.model_validate({"issuer_url": url, "resource_server_url": None})


class OAuthTokens:
    """Verifies access tokens that are JWTs of one issuer, for this resource.

    A token needs `exp`, `iss`, `sub` and, as `aud`, the resource. Its scopes are in `scope` (RFC 9068).
    """

    def __init__(self, issuer: str, resource: str) -> None:
        parts = urlsplit(issuer)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"the issuer {issuer[:100]!r} is not an http or https URL")
        self._issuer = issuer
        self._resource = resource
        self._keys: dict[str, Any] = {}
        self._fetched = self._tried = float("-inf")
        self._fetching = anyio.Lock()

    async def verify_token(self, token: str) -> AccessToken | None:
        """Returns the access that a valid token gives."""
        if len(token) > _TOKEN_CHARS:
            return None
        try:
            key = await self._key(jwt.get_unverified_header(token))
            if key is None:
                return None
            claims = jwt.decode(
                token,
                key,
                algorithms=_ALGORITHMS,
                audience=self._resource,
                issuer=self._issuer,
                leeway=_LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except jwt.PyJWTError as error:
            logger.info("an MCP client's token is invalid: %s", type(error).__name__)
            return None
        scope = claims.get("scope")
        return AccessToken(
            token=token,
            client_id=str(claims.get("client_id") or claims.get("azp") or claims["sub"]),
            scopes=scope.split() if isinstance(scope, str) else [],
            expires_at=int(claims["exp"]),
            resource=self._resource,
            subject=str(claims["sub"]),
            claims=claims,
        )

    async def _key(self, header: dict[str, Any]) -> Any:
        name = str(header.get("kid", ""))
        now = time.monotonic()
        if now - self._fetched > _KEYS_SECONDS or name not in self._keys:
            async with self._fetching:
                now = time.monotonic()
                stale = now - self._fetched > _KEYS_SECONDS or name not in self._keys
                if stale and now - self._tried > _AGAIN_SECONDS:
                    self._tried = now
                    await self._fetch()
        return self._keys.get(name)

    async def _fetch(self) -> None:
        try:
            parts = urlsplit(self._issuer)
            well_known = (
                f"{parts.scheme}://{parts.netloc}/.well-known/oauth-authorization-server{parts.path.rstrip('/')}"
            )
            metadata = await _json(well_known)
            if metadata.get("issuer") != self._issuer:
                raise ValueError("its metadata names another issuer")
            listed = await _json(str(metadata.get("jwks_uri")))
            keys = jwt.PyJWKSet.from_dict(listed).keys
        except (ValueError, ConfigError, httpx.HTTPError, EgressBlocked, jwt.PyJWTError) as error:
            logger.warning("the keys of the issuer %s cannot be read: %s", self._issuer, error)
            return
        self._keys = {each.key_id or "": each for each in keys}
        self._fetched = time.monotonic()

    def settings(self, scopes: Iterable[str] = ()) -> AuthSettings:
        """Makes the SDK's settings for a resource server, for `streamable_http_app(auth=...)`."""
        urls = {"issuer_url": self._issuer, "resource_server_url": self._resource}  # an `AnyHttpUrl` would get a slash
        return AuthSettings.model_validate({**urls, "required_scopes": list(scopes), "validate_token_resource": True})


async def _json(url: str) -> dict[str, Any]:
    """Fetches a JSON object.

    Raises:
        ValueError: the answer is not a JSON object, or the URL is malformed.
        ConfigError: the URL has no host.
        EgressBlocked, httpx.HTTPError: it cannot be reached.
    """
    policy = service_policy(url, max_response_bytes=_METADATA_BYTES, total_seconds=_FETCH_SECONDS)
    async with SafeClient(policy, timeout=_FETCH_SECONDS) as client:
        response = await client.get(url)
    if response.status_code != 200:
        raise ValueError(f"{url} has status {response.status_code}")
    content = from_json(response.content)
    if not isinstance(content, dict):
        raise ValueError(f"{url} is not a JSON object")
    return cast("dict[str, Any]", content)


def access_token_of(request: ServerRequestContext[Any, Any]) -> AccessToken | None:
    """Returns a request's verified token; None if the server does not require tokens."""
    http = request.request
    if not isinstance(http, Request) or "user" not in http.scope:
        return None
    user: object = http.scope["user"]
    return user.access_token if isinstance(user, AuthenticatedUser) else None
