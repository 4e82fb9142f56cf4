"""Credentials of the host, in the locations that a document's security schemes name."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast

from corral.arguments import checked
from corral.errors import ConfigError
from corral.sources.openapi.documents import DocumentNode
from corral.sources.openapi.parameters import Line, Place, Unwritable, header_value, in_cookie, quoted_all
from corral.sources.opening import credential_of
from corral.types import ExecutionContext


@checked
@dataclass(frozen=True, slots=True)
class Bearer:
    """Token for the header Authorization, also for OAuth 2 and OpenID Connect."""

    token: str = field(repr=False)


@checked
@dataclass(frozen=True, slots=True)
class Basic:
    """User name and password for the header Authorization."""

    username: str
    password: str = field(repr=False)


@checked
@dataclass(frozen=True, slots=True)
class ApiKey:
    """Key for the location that its security scheme names. Set `name` and `place` for documents without a scheme."""

    value: str = field(repr=False)
    name: str | None = None
    place: Literal["header", "query", "cookie"] = "header"


Given: TypeAlias = Bearer | Basic | ApiKey
Credential: TypeAlias = Given | Callable[[ExecutionContext], Given | Awaitable[Given | None] | None]
"""Credential, or a function that returns a caller's credential. If it returns None, the call fails with a message."""

_CREDENTIAL_TYPES = "a Bearer, Basic or ApiKey of corral.sources.openapi, or a function that returns one"
_WHOLE = ""
"""Name under which a single credential is stored: it is for all operations, whatever the document says."""


@dataclass(frozen=True, slots=True)
class _Scheme:
    kind: type[Given] | None
    """Type of credential for the scheme; None if no type supports it."""
    title: str
    place: Place = "header"
    parameter: str = "Authorization"


@dataclass(slots=True)
class Identity:
    """Parts of one request that hold credentials. `secrets` are texts that must not appear in messages."""

    pairs: list[tuple[Place, str, str]] = field(default_factory=list[tuple[Place, str, str]], repr=False)
    secrets: list[str] = field(default_factory=list[str], repr=False)

    def write(self, line: Line) -> None:
        """Adds them to a request. They replace values that a program has sent under the same names."""
        for place, name, text in self.pairs:
            match place:
                case "query":
                    line.query = [*(each for each in line.query if each[0] != name), (name, text)]
                case "cookie":
                    line.cookies = [*(each for each in line.cookies if each[0] != name), (name, text)]
                case _:
                    kept = [each for each in line.headers if each[0].lower() != name.lower()]
                    line.headers = [*kept, (name, text)]


class Security:
    """Security schemes of a document, and the host's credentials for them.

    Raises:
        ConfigError: the document has no such scheme, or its credential has another type.
    """

    def __init__(self, document: DocumentNode, credentials: Credential | Mapping[str, Credential]) -> None:
        components = document.member("components")
        declared = components and components.member("securitySchemes")
        self._schemes = {name: _scheme(part.resolved()) for name, part in declared.members()} if declared else {}
        self._credentials: dict[str, Credential] = {}
        if isinstance(credentials, Mapping):
            by_scheme = cast("Mapping[str, Credential]", credentials)
        else:
            _require_credential("credentials", credentials)
            by_scheme = {_WHOLE: credentials}
            self._schemes[_WHOLE] = _whole(credentials)
        for name, credential in by_scheme.items():
            self._require_fitting(name, credential)
            self._credentials[name] = credential
        self._by_default = document.own("security")

    def is_credential(self, place: Place, name: str) -> bool:
        """True if a parameter is where this document expects a credential."""
        folded = name.lower() if place == "header" else name
        return any(
            each.place == place and (each.parameter.lower() if place == "header" else each.parameter) == folded
            for each in self._schemes.values()
        )

    def needed(self, operation: DocumentNode) -> Sequence[str] | str:
        """Returns the schemes whose credentials an operation needs or, if some are missing, a text that says so.

        Raises Unusable.
        """
        if _WHOLE in self._credentials:
            return (_WHOLE,)
        stated = operation.own("security") or self._by_default
        alternatives = [[name for name, _ in each.members()] for each in stated.items()] if stated else []
        for names in sorted(alternatives, key=lambda names: not names):
            if all(name in self._credentials for name in names):
                return names
        if not alternatives:
            return ()
        schemes = " or ".join(" with ".join(map(self._describe, names)) for names in alternatives)
        return f"it needs a credential: {schemes}"

    async def identify(self, names: Sequence[str], context: ExecutionContext) -> Identity:
        """Returns a caller's credentials. Raises ToolError if the caller has none."""
        identity = Identity()
        for name in names:
            credential = self._credentials[name]
            if callable(credential):
                credential = cast("Given", await credential_of(credential, context, name))
            scheme = self._schemes[name] if name else _whole(credential)
            _write(credential, scheme, name, identity)
        return identity

    def _require_fitting(self, name: str, credential: Credential) -> None:
        _require_credential(f"credentials[{name!r}]", credential)
        if name not in self._schemes:
            there = ", ".join(sorted(self._schemes)) or "none; pass one credential for all of them"
            raise ConfigError(f"the document has no security scheme {name!r}; it has: {there}")
        scheme = self._schemes[name]
        if not callable(credential):
            _write(credential, scheme, name, Identity())
        elif scheme.kind is None and name:
            raise ConfigError(f"the security scheme {name!r} is {scheme.title}, which is not supported")

    def _describe(self, name: str) -> str:
        scheme = self._schemes.get(name)
        return f"{name} ({scheme.title})" if scheme else f"{name} (which is not declared)"


def _require_credential(option: str, credential: object) -> None:
    """Raises ConfigError, without secrets in its message."""
    if not (isinstance(credential, Given) or callable(credential)):
        raise ConfigError(f"{option} must be {_CREDENTIAL_TYPES}, not {type(credential).__name__}")


def _scheme(part: DocumentNode) -> _Scheme:
    kind = part.text("type")
    if kind == "apiKey" and part.text("in") in ("header", "query", "cookie"):
        return _Scheme(ApiKey, f"a key in the {part.text('in')}", cast("Place", part.text("in")), part.text("name"))
    if kind in ("oauth2", "openIdConnect"):
        return _Scheme(Bearer, f"a token of {kind}")
    if kind == "http" and part.text("scheme").lower() == "bearer":
        return _Scheme(Bearer, "a bearer token")
    if kind == "http" and part.text("scheme").lower() == "basic":
        return _Scheme(Basic, "user name and password")
    return _Scheme(None, f"{kind} {part.text('scheme')}".strip()[:50], parameter="")


def _whole(credential: Credential | Given) -> _Scheme:
    if isinstance(credential, ApiKey):
        if credential.name is None:
            raise ConfigError("ApiKey needs a name where it is for no security scheme: ApiKey(key, name='X-Api-Key')")
        return _Scheme(ApiKey, "a key", credential.place, credential.name)
    return _Scheme(None if callable(credential) else type(credential), "a credential")


def _write(credential: Given, scheme: _Scheme, name: str, identity: Identity) -> None:
    """Adds a credential to `identity`. Raises ConfigError, without secrets in its message."""
    if scheme.kind is None or not isinstance(credential, scheme.kind):
        supported = f"; it takes a {scheme.kind.__name__}" if scheme.kind else ", which is not supported"
        raise ConfigError(
            f"the security scheme {name!r} is {scheme.title}{supported}, not a {type(credential).__name__}"
        )
    match credential:
        case Bearer(token):
            text = f"Bearer {token}"
        case Basic(username, password):
            text = f"Basic {b64encode(f'{username}:{password}'.encode()).decode()}"
        case ApiKey(value):
            text = value
    parameter, secret = scheme.parameter, text
    match scheme.place:
        case "query":
            parameter, text = quoted_all(parameter), quoted_all(text)
        case "cookie":
            text = in_cookie(text)
        case _:
            try:
                header_value(text)
            except Unwritable:
                raise ConfigError(f"the credential for {name or 'the document'} is not allowed in a header") from None
    identity.pairs.append((scheme.place, parameter, text))
    identity.secrets += (secret, text)
