"""Execution tokens: short-lived JWTs that say for which execution, and for whom, calls over HTTP are made.

Signatures and keys are PyJWT's and cryptography's. What a token must look like is stricter than RFC 7519 asks, because
only this module writes them: three members in the header, all claims present, one way to spell the signature.
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
from corral.errors import ConfigError, InvalidToken, MissingExtra
from corral.types import ExecutionContext

try:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from jwt import PyJWS, PyJWTError
    from jwt.algorithms import get_default_algorithms
    from jwt.utils import base64url_encode
except ModuleNotFoundError as error:
    raise MissingExtra("execution tokens need PyJWT and cryptography: pip install 'corral[http]'") from error

__all__ = ["MAX_TOKEN_BYTES", "MAX_TTL_SECONDS", "Algorithm", "Claims", "ExecutionTokens", "Key", "KeyRing"]

Algorithm: TypeAlias = Literal["HS256", "EdDSA", "ES256"]
"""HS256 where one host issues and verifies; EdDSA or ES256 where several verify what one issues."""

MAX_TTL_SECONDS = 300.0
"""No token is issued for longer, and none that lives longer is taken, whoever signed it."""
MAX_TOKEN_BYTES = 8192
_SKEW_SECONDS = 5.0
"""Seconds that the issuing host's clock may be ahead. `exp` has no leeway: no token outlives it."""
_TYPE = "corral-execution+jwt"
_CACHED = 4096
"""Verified tokens whose claims are kept, about 1 kB each."""
_MIN_SECRET_BYTES = 32
"""RFC 7518, section 3.2: an HS256 key has at least the size of the hash."""
_FROM_ENVIRONMENT = "TOOL_BRIDGE_SECRET"
_ALGORITHMS = get_default_algorithms()
_JWS = PyJWS()


@checked
class Key:
    """A key with a name. Private keys and secrets sign and verify, public keys only verify.

    Raises:
        ConfigError: the name is empty, the secret has under 32 bytes, or the PEM is not a key of the algorithm
            (EdDSA: Ed25519; ES256: P-256), without a password.
    """

    __slots__ = ("_signing", "_verifying", "algorithm", "kid")

    def __init__(self, kid: str, secret: str | bytes, algorithm: Algorithm = "HS256") -> None:
        if not 0 < len(kid) <= 200:
            raise ConfigError("the name (kid) of a key has 1 to 200 characters")
        self.kid = kid
        self.algorithm: Algorithm = algorithm
        try:
            key: Any = _ALGORITHMS[algorithm].prepare_key(secret)
        except Exception:  # whatever it was, its text might show a part of the key
            kind = "secret; a PEM is for EdDSA or ES256" if algorithm == "HS256" else f"PEM of an {algorithm} key"
            raise ConfigError(f"key {kid!r}: this is not a {kind}") from None
        match key:
            case bytes():
                if len(key) < _MIN_SECRET_BYTES:
                    raise ConfigError(f"key {kid!r}: an HS256 secret has at least {_MIN_SECRET_BYTES} bytes")
                self._signing, self._verifying = key, key
            case Ed25519PrivateKey() | EllipticCurvePrivateKey():
                self._signing, self._verifying = key, key.public_key()
            case _:
                self._signing, self._verifying = None, key
        if algorithm == "EdDSA" and not isinstance(self._verifying, Ed25519PublicKey):
            raise ConfigError(f"key {kid!r}: of the EdDSA keys only Ed25519 is supported")
        if isinstance(self._verifying, EllipticCurvePublicKey) and not isinstance(self._verifying.curve, SECP256R1):
            raise ConfigError(f"key {kid!r}: an ES256 key is on the curve P-256")

    def __repr__(self) -> str:
        return f"Key({self.kid!r}, {self.algorithm!r})"

    @property
    def can_sign(self) -> bool:
        return self._signing is not None

    def sign(self, payload: bytes) -> str:
        """A JWS of `payload`, in the compact form."""
        assert self._signing is not None
        return _JWS.encode(payload, self._signing, self.algorithm, headers={"kid": self.kid, "typ": _TYPE})

    def open(self, jws: str) -> bytes:
        """The payload of a JWS that this key signed.

        Raises:
            InvalidToken: it did not, or the signature has another spelling than `sign` would have given it.
        """
        try:
            opened = _JWS.decode_complete(jws, self._verifying, [self.algorithm])
        except PyJWTError:
            raise InvalidToken("the token's signature is wrong") from None
        if base64url_encode(opened["signature"]).decode() != jws.rpartition(".")[2]:  # its last bits are not signed
            raise InvalidToken("the token is malformed")
        return opened["payload"]


@checked
class KeyRing:
    """The keys of a host: the first that can sign signs, all verify.

    `clock` gives seconds since the Unix epoch, for the keys as for the tokens.

    Raises:
        ConfigError: there is no key, or two have the same name.
    """

    def __init__(self, *keys: Key, clock: Callable[[], float] = time.time) -> None:
        if not keys:
            raise ConfigError("a ring needs at least one key; KeyRing.generate() makes one")
        self.clock = clock
        self._keys = {key.kid: key for key in keys}
        if len(self._keys) < len(keys):
            raise ConfigError(f"two keys have the same name (kid): {', '.join(key.kid for key in keys)}")
        self._retired_at: Mapping[str, float] = {}

    @classmethod
    def generate(cls, *, clock: Callable[[], float] = time.time) -> KeyRing:
        """One random HS256 key, which is gone with the process."""
        return cls(Key(secrets.token_hex(8), secrets.token_bytes(32)), clock=clock)

    @classmethod
    def from_text(cls, text: str, *, clock: Callable[[], float] = time.time) -> KeyRing:
        """HS256 keys as an environment variable holds them: `kid:secret,kid:secret`, secrets in base64.

        Raises:
            ConfigError: the text is not of this form, or its keys are not keys of a ring.
        """
        keys: list[Key] = []
        for part in text.split(","):
            try:
                kid, encoded = part.strip().split(":")
                secret = base64.b64decode(encoded, validate=True)
            except ValueError:  # whose text may show a part of a secret
                raise ConfigError("the text of a key ring is kid:secret,kid:secret with secrets in base64") from None
            keys.append(Key(kid, secret))
        return cls(*keys, clock=clock)

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(map(repr, self._keys.values()))})"

    def rotate(self, key: Key, overlap_seconds: float = MAX_TTL_SECONDS) -> None:
        """Puts `key` first. All others stop to sign at once, and to verify after `overlap_seconds`.

        Raises:
            ConfigError: a key of that name is in use, or the overlap is negative or not finite.
        """
        if not 0 <= overlap_seconds < float("inf"):
            raise ConfigError("overlap_seconds is zero or more, and finite")
        kept = {kid: each for kid, each in self._keys.items() if self.find(kid)}
        if key.kid in kept:
            raise ConfigError(f"a key with the name (kid) {key.kid!r} is in use; a new key needs a new name")
        end = self.clock() + overlap_seconds
        self._keys = {key.kid: key, **kept}
        self._retired_at = {kid: min(end, self._retired_at.get(kid, end)) for kid in kept}

    def find(self, kid: str) -> Key | None:
        """The key of that name, as long as it verifies."""
        end = self._retired_at.get(kid)
        return self._keys.get(kid) if end is None or self.clock() < end else None

    def signing_key(self) -> Key:
        """The key that signs.

        Raises:
            ConfigError: there is none.
        """
        for kid, key in self._keys.items():
            if key.can_sign and kid not in self._retired_at:
                return key
        raise ConfigError("no key of the ring can sign: tokens are issued with a secret or a private key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """Claims of a verified token. `expires_at` is in seconds since the Unix epoch."""

    execution_id: str
    user_id: str
    organization_id: str | None
    session_id: str | None
    scopes: frozenset[str]
    expires_at: float
    token_id: str


@checked
class ExecutionTokens:
    """Issues and verifies the tokens of executions.

    Without `keys`, the key is the environment variable TOOL_BRIDGE_SECRET. If that is not set, it is a random one of
    this object alone.

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

    def issue(self, execution_id: str, context: ExecutionContext, *, ttl_seconds: float | None = None) -> str:
        """A token for calls of one execution, with the scopes of its context. `metadata` is not in it.

        Raises:
            ConfigError: the time to live is not in (0, 300], a scope has whitespace or is empty, no key can sign, or
                the token would be longer than 8 kB.
        """
        ttl = self._ttl_seconds if ttl_seconds is None else _checked_ttl(ttl_seconds)
        for scope in context.scopes:
            if scope.split() != [scope]:
                raise ConfigError(f"the scope {scope!r} cannot be in a token: it is empty or has whitespace")
        key = self._keys.signing_key()
        now = round(self._keys.clock(), 3)
        claims = {
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
        token = key.sign(json.dumps(claims, separators=(",", ":")).encode())
        if len(token) > MAX_TOKEN_BYTES:
            raise ConfigError(f"the token would have {len(token)} bytes, over {MAX_TOKEN_BYTES}; give it fewer scopes")
        return token

    def verify(self, token: str) -> Claims:
        """The claims of `token`, if all of it is as `issue` would have written it, and it is valid now.

        Raises:
            InvalidToken: it is not; the message says in a few words why.
        """
        if not token:
            raise InvalidToken("there is no token")
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
            raise InvalidToken("the token's header is not that of an execution token")
        if header["typ"] != _TYPE:
            raise InvalidToken("the token is of another type")
        key = self._keys.find(header["kid"])
        if key is None:
            raise InvalidToken("the key of the token is unknown")
        if header["alg"] != key.algorithm:
            raise InvalidToken("the token's algorithm is not that of its key")
        return self._claims(key.open(token)), key

    def _claims(self, payload: bytes) -> Claims:
        try:
            said = _Payload.model_validate_json(payload)
        except ValidationError as error:
            problem = error.errors()[0]
            if not problem["loc"]:
                raise InvalidToken("the token is malformed") from None
            if problem["type"] == "missing":
                raise InvalidToken(f"the token lacks the claim {problem['loc'][0]}") from None
            raise InvalidToken(f"the token's claim {problem['loc'][0]} has the wrong type") from None
        if said.iss != self._issuer:
            raise InvalidToken("the token is of another issuer")
        if said.aud != self._audience:
            raise InvalidToken("the token is for another audience")
        # The library's own checks of times go by whole seconds, and by another clock than the ring's.
        if max(said.iat, said.nbf) > self._keys.clock() + _SKEW_SECONDS:
            raise InvalidToken("the token is not valid yet")
        if not round(said.exp - said.iat, 3) <= MAX_TTL_SECONDS:
            raise InvalidToken(f"the token lives longer than {MAX_TTL_SECONDS:g} s")
        return Claims(
            execution_id=said.exec,
            user_id=said.sub,
            organization_id=said.org,
            session_id=said.sid,
            scopes=frozenset(said.scope.split()),
            expires_at=said.exp,
            token_id=said.jti,
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


def _default_keys() -> KeyRing:
    secret = os.environ.get(_FROM_ENVIRONMENT)
    if secret is None:
        return KeyRing.generate()
    if len(secret.encode()) < _MIN_SECRET_BYTES:
        raise ConfigError(
            f"{_FROM_ENVIRONMENT} has under {_MIN_SECRET_BYTES} bytes; `openssl rand -hex 32` prints one of 64"
        )
    return KeyRing(Key("environment", secret))


def _checked_ttl(seconds: float) -> float:
    if not 0 < seconds <= MAX_TTL_SECONDS:
        raise ConfigError(f"ttl_seconds is more than 0 and at most {MAX_TTL_SECONDS:g}")
    return seconds
