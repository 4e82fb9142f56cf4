"""Execution tokens: short-lived JWTs that identify the execution and caller of calls over HTTP.

PyJWT and cryptography implement signatures and keys. Only this module writes tokens, so it accepts fewer than RFC 7519
allows: three members in the header, all claims present, one encoding of the signature.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ValidationError

from corral.arguments import checked
from corral.errors import ConfigError, InvalidToken, requires_extra
from corral.types import ExecutionContext

with requires_extra("an execution token", "http"):
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from jwt import PyJWS, PyJWTError
    from jwt.algorithms import get_default_algorithms
    from jwt.utils import base64url_encode

__all__ = ["MAX_TOKEN_BYTES", "MAX_TTL_SECONDS", "Algorithm", "Claims", "ExecutionTokens", "Key", "KeyRing"]

Algorithm: TypeAlias = Literal["HS256", "EdDSA", "ES256"]
"""HS256 if the issuing host also verifies; EdDSA or ES256 if several hosts verify the tokens that one issues."""

MAX_TTL_SECONDS = 300.0
"""Maximum lifetime of a token in seconds, enforced both when it is issued and when it is verified."""
MAX_TOKEN_BYTES = 8192
_SKEW_SECONDS = 5.0
"""Seconds by which the issuing host's clock may be ahead. `exp` has no leeway."""
_TYPE = "corral-execution+jwt"
_CACHED = 4096
"""Maximum number of verified tokens whose claims are cached, at about 1 kB each."""
_MIN_SECRET_BYTES = 32
"""RFC 7518, section 3.2: an HS256 key must be at least as long as the hash."""
_FROM_ENVIRONMENT = "TOOL_BRIDGE_SECRET"
_ALGORITHMS = get_default_algorithms()
_JWS = PyJWS()


@checked
class Key:
    """Named key. Private keys and secrets sign and verify; public keys only verify.

    Raises:
        ConfigError: the name is empty, the secret has under 32 bytes, or the PEM is not a key of the algorithm
            (EdDSA: Ed25519; ES256: P-256), without a password.
    """

    __slots__ = ("_signing", "_verifying", "algorithm", "kid")

    def __init__(self, kid: str, secret: str | bytes, algorithm: Algorithm = "HS256") -> None:
        if not 0 < len(kid) <= 200:
            raise ConfigError(f"the name (kid) of a key must have 1 to 200 characters, not {len(kid)}")
        self.kid = kid
        self.algorithm: Algorithm = algorithm
        try:
            key: Any = _ALGORITHMS[algorithm].prepare_key(secret)
        except Exception:  # its text may contain part of the key
            kind = "secret; a PEM is for EdDSA or ES256" if algorithm == "HS256" else f"PEM of an {algorithm} key"
            raise ConfigError(f"key {kid!r}: this is not a {kind}") from None
        match key:
            case bytes():
                if len(key) < _MIN_SECRET_BYTES:
                    raise ConfigError(f"key {kid!r}: an HS256 secret must have at least {_MIN_SECRET_BYTES} bytes")
                self._signing, self._verifying = key, key
            case Ed25519PrivateKey() | EllipticCurvePrivateKey():
                self._signing, self._verifying = key, key.public_key()
            case _:
                self._signing, self._verifying = None, key
        if algorithm == "EdDSA" and not isinstance(self._verifying, Ed25519PublicKey):
            raise ConfigError(f"key {kid!r}: Ed25519 is the only supported kind of EdDSA key")
        if isinstance(self._verifying, EllipticCurvePublicKey) and not isinstance(self._verifying.curve, SECP256R1):
            raise ConfigError(f"key {kid!r}: an ES256 key must be on the curve P-256")

    def __repr__(self) -> str:
        return f"Key({self.kid!r}, {self.algorithm!r})"

    @property
    def can_sign(self) -> bool:
        return self._signing is not None

    def sign(self, payload: bytes) -> str:
        """Returns a compact JWS of `payload`."""
        assert self._signing is not None
        return _JWS.encode(payload, self._signing, self.algorithm, headers={"kid": self.kid, "typ": _TYPE})

    def open(self, jws: str) -> bytes:
        """Returns the payload of a JWS that this key signed.

        Raises:
            InvalidToken: the signature does not match, or its encoding differs from that of `sign`.
        """
        try:
            parts = _JWS.decode_complete(jws, self._verifying, [self.algorithm])
        except PyJWTError:
            raise InvalidToken("the token's signature is wrong") from None
        if base64url_encode(parts["signature"]).decode() != jws.rpartition(".")[2]:  # unused last bits
            raise InvalidToken("the token is malformed")
        return parts["payload"]


@checked
class KeyRing:
    """Keys of a host. The first one that can sign does so; all of them verify.

    `clock` returns seconds since the Unix epoch, for keys and tokens.

    Raises:
        ConfigError: no key was passed, or two have the same name.
    """

    def __init__(self, *keys: Key, clock: Callable[[], float] = time.time) -> None:
        if not keys:
            raise ConfigError("a ring needs at least one key; KeyRing.generate() makes one")
        self.clock = clock
        self._keys = {key.kid: key for key in keys}
        if len(self._keys) < len(keys):
            raise ConfigError(f"two keys have the same name (kid): {', '.join(key.kid for key in keys)}")
        self._retired_at: Mapping[str, float] = {}
        self.is_random = False
        """True if `generate` made its key, which no other host has."""

    @classmethod
    def generate(cls, *, clock: Callable[[], float] = time.time) -> KeyRing:
        """Returns a ring with one random HS256 key that exists only in this process."""
        ring = cls(Key(secrets.token_hex(8), secrets.token_bytes(32)), clock=clock)
        ring.is_random = True
        return ring

    @classmethod
    def from_text(cls, text: str, *, clock: Callable[[], float] = time.time) -> KeyRing:
        """Parses HS256 keys from an environment variable: `kid:secret,kid:secret`, with secrets in base64.

        Raises:
            ConfigError: the text does not have this form, or its keys are invalid.
        """
        keys: list[Key] = []
        for part in text.split(","):
            try:
                kid, encoded = part.strip().split(":")
                secret = base64.b64decode(encoded, validate=True)
            except ValueError:  # its text may contain part of a secret
                raise ConfigError("the text of a key ring must be kid:secret,kid:secret, secrets in base64") from None
            keys.append(Key(kid, secret))
        return cls(*keys, clock=clock)

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(map(repr, self._keys.values()))})"

    def rotate(self, key: Key, overlap_seconds: float = MAX_TTL_SECONDS) -> None:
        """Puts `key` first. All others stop signing at once, and stop verifying after `overlap_seconds`.

        Raises:
            ConfigError: the key's name is in use, or the overlap is negative or not finite.
        """
        if not 0 <= overlap_seconds < float("inf"):
            raise ConfigError(f"overlap_seconds must be finite and not negative, not {overlap_seconds}")
        remaining = {kid: each for kid, each in self._keys.items() if self.find(kid)}
        if key.kid in remaining:
            raise ConfigError(f"the key name (kid) {key.kid!r} is in use; a new key needs a new name")
        end = self.clock() + overlap_seconds
        self.is_random = False
        self._keys = {key.kid: key, **remaining}
        self._retired_at = {kid: min(end, self._retired_at.get(kid, end)) for kid in remaining}

    def find(self, kid: str) -> Key | None:
        """Returns the key with that name, as long as it verifies."""
        end = self._retired_at.get(kid)
        return self._keys.get(kid) if end is None or self.clock() < end else None

    def signing_key(self) -> Key:
        """Returns the signing key.

        Raises:
            ConfigError: no key can sign.
        """
        for kid, key in self._keys.items():
            if key.can_sign and kid not in self._retired_at:
                return key
        raise ConfigError("no key of the ring can sign; issuing tokens requires a secret or a private key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """Claims of a verified token. `expires_at` is in seconds since the Unix epoch.

    `host` is the name of the issuing host among its peers, if it has any.
    """

    execution_id: str
    user_id: str
    organization_id: str | None
    session_id: str | None
    scopes: frozenset[str]
    expires_at: float
    token_id: str
    host: str | None = None


@checked
class ExecutionTokens:
    """Issues and verifies the tokens of executions.

    Without `keys`, the key is the environment variable TOOL_BRIDGE_SECRET or, if that is unset, a random key of this
    object.

    Raises:
        ConfigError: `ttl_seconds` is not in (0, 300], or TOOL_BRIDGE_SECRET has under 32 bytes.
    """

    def __init__(
        self,
        keys: KeyRing | None = None,
        *,
        issuer: str = "corral",
        audience: str = "corral:bridge",
        ttl_seconds: float = MAX_TTL_SECONDS,
    ) -> None:
        self._keys = keys or _default_keys()
        self._issuer = issuer
        self._audience = audience
        self._ttl_seconds = _checked_ttl(ttl_seconds)
        self._verified: dict[bytes, tuple[Claims, Key]] = {}  # by SHA-256 of the token

    @property
    def key_is_random(self) -> bool:
        """True if no other host can verify the tokens, because their key exists only in this process."""
        return self._keys.is_random

    def issue(
        self,
        execution_id: str,
        context: ExecutionContext,
        *,
        ttl_seconds: float | None = None,
        host: str | None = None,
    ) -> str:
        """Issues a token for calls of one execution, with the scopes of its context but not its `metadata`.

        `host` is the name of the issuing host among its peers.

        Raises:
            ConfigError: the time to live is not in (0, 300], a scope has whitespace or is empty, no key can sign, or
                the token would be longer than 8 kB.
        """
        ttl = self._ttl_seconds if ttl_seconds is None else _checked_ttl(ttl_seconds)
        for scope in context.scopes:
            if scope.split() != [scope]:
                raise ConfigError(f"the scope {scope!r} cannot be in a token: it is empty or contains whitespace")
        key = self._keys.signing_key()
        now = round(self._keys.clock(), 3)
        claims: dict[str, object] = {
            "iss": self._issuer,
            "aud": self._audience,
            "sub": context.user_id,
            "org": context.organization_id,
            "sid": context.session_id,
            "exec": execution_id,
            "jti": secrets.token_hex(16),
            "iat": now,
            "nbf": now,
            "exp": round(now + ttl, 3),
            "scope": " ".join(sorted(context.scopes)),
        }
        if host is not None:
            claims["host"] = host
        token = key.sign(json.dumps(claims, separators=(",", ":")).encode())
        if len(token) > MAX_TOKEN_BYTES:
            raise ConfigError(f"the token would have {len(token)} bytes, over {MAX_TOKEN_BYTES}; give it fewer scopes")
        return token

    def verify(self, token: str) -> Claims:
        """Verifies a token, which must have the exact form that `issue` writes, and returns its claims.

        Raises:
            InvalidToken: the token is invalid; the message has the reason.
        """
        if not token:
            raise InvalidToken("the token is missing")
        if len(token) > MAX_TOKEN_BYTES:
            raise InvalidToken("the token is too long")
        if not token.isascii():
            raise InvalidToken("the token is malformed")
        digest = hashlib.sha256(token.encode()).digest()
        claims, key = self._verified.get(digest) or self._verify(token)
        if self._keys.find(key.kid) is not key:
            raise InvalidToken("the key of the token is unknown")
        if self._keys.clock() >= claims.expires_at:
            raise InvalidToken("the token has expired")
        if digest not in self._verified:
            if len(self._verified) >= _CACHED:
                self._verified.pop(next(iter(self._verified)), None)
            self._verified[digest] = claims, key
        return claims

    def _verify(self, token: str) -> tuple[Claims, Key]:
        try:
            header = _JWS.get_unverified_header(token)
        except (PyJWTError, RecursionError):
            raise InvalidToken("the token is malformed") from None
        if header.keys() != {"alg", "kid", "typ"}:  # also no jwk, jku, x5u, crit, b64
            raise InvalidToken("the token's header is not an execution token's")
        if header["typ"] != _TYPE:
            raise InvalidToken("the token has another type")
        key = self._keys.find(header["kid"])
        if key is None:
            raise InvalidToken("the key of the token is unknown")
        if header["alg"] != key.algorithm:
            raise InvalidToken("the token's algorithm does not match its key")
        return self._claims(key.open(token)), key

    def _claims(self, payload: bytes) -> Claims:
        try:
            claims = _Payload.model_validate_json(payload)
        except ValidationError as error:
            problem = error.errors()[0]
            if not problem["loc"]:
                raise InvalidToken("the token is malformed") from None
            if problem["type"] == "missing":
                raise InvalidToken(f"the token lacks the claim {problem['loc'][0]}") from None
            raise InvalidToken(f"the token's claim {problem['loc'][0]} has the wrong type") from None
        if claims.iss != self._issuer:
            raise InvalidToken("the token's issuer is not this bridge's; request a new token from this bridge")
        if claims.aud != self._audience:
            raise InvalidToken("the token's audience is not this bridge; request a new token from this bridge")
        # The library checks times in whole seconds, and not by the ring's clock.
        if max(claims.iat, claims.nbf) > self._keys.clock() + _SKEW_SECONDS:
            raise InvalidToken("the token is not valid yet")
        if not round(claims.exp - claims.iat, 3) <= MAX_TTL_SECONDS:
            raise InvalidToken(f"the token lives longer than {MAX_TTL_SECONDS:g} s")
        return Claims(
            execution_id=claims.exec,
            user_id=claims.sub,
            organization_id=claims.org,
            session_id=claims.sid,
            scopes=frozenset(claims.scope.split()),
            expires_at=claims.exp,
            token_id=claims.jti,
            host=claims.host,
        )


class _Payload(BaseModel, strict=True, allow_inf_nan=False):
    iss: str
    aud: str
    sub: str
    org: str | None
    sid: str | None
    exec: str
    jti: str
    iat: float
    nbf: float
    exp: float
    scope: str
    host: str | None = None


def _default_keys() -> KeyRing:
    secret = os.environ.get(_FROM_ENVIRONMENT)
    if secret is None:
        return KeyRing.generate()
    if len(secret.encode()) < _MIN_SECRET_BYTES:
        raise ConfigError(f"{_FROM_ENVIRONMENT} has under {_MIN_SECRET_BYTES} bytes; `openssl rand -hex 32` prints 64")
    return KeyRing(Key("environment", secret))


def _checked_ttl(seconds: float) -> float:
    if not 0 < seconds <= MAX_TTL_SECONDS:
        raise ConfigError(f"ttl_seconds must be more than 0 and at most {MAX_TTL_SECONDS:g}, not {seconds}")
    return seconds
