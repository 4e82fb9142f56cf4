"""A token is taken only if it is exactly what this host, or one it trusts, issued for now."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given, settings
from hypothesis import strategies as st
from jwt.algorithms import HMACAlgorithm

from corral.calls.tokens import MAX_TOKEN_BYTES, Algorithm, Claims, ExecutionTokens, Key, KeyRing
from corral.errors import ConfigError, InvalidToken
from corral.types import ExecutionContext
from tests.work import examples

NOW = 1_800_000_000.0
SECRET = bytes(range(32))
CONTEXT = ExecutionContext(user_id="ada", session_id="s-1", organization_id="acme", scopes={"mail:send", "read"})


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def pem(key: Any) -> tuple[bytes, bytes]:
    """A private key as PEM, and its public one."""
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private, public


ED25519 = pem(ed25519.Ed25519PrivateKey.generate())
P256 = pem(ec.generate_private_key(ec.SECP256R1()))
KEYS: dict[Algorithm, tuple[bytes, bytes]] = {"HS256": (SECRET, SECRET), "EdDSA": ED25519, "ES256": P256}


def ring(*keys: Key, clock: Callable[[], float] | None = None) -> KeyRing:
    return KeyRing(*(keys or (Key("one", SECRET),)), clock=clock or Clock())


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


HEADER: dict[str, Any] = {"alg": "HS256", "kid": "one", "typ": "corral-execution+jwt"}
PAYLOAD: dict[str, Any] = {
    "iss": "corral",
    "aud": "corral:bridge",
    "sub": "ada",
    "org": None,
    "sid": "s-1",
    "exec": "e-1",
    "jti": "t-1",
    "iat": NOW,
    "nbf": NOW,
    "exp": NOW + 60,
    "scope": "",
}


def forged(header: object = HEADER, payload: object = PAYLOAD, secret: bytes = SECRET) -> str:
    """A token of any content; strings and bytes are taken as they are. Signed with HMAC-SHA256."""
    parts = [
        each if isinstance(each, bytes) else each.encode() if isinstance(each, str) else json.dumps(each).encode()
        for each in (header, payload)
    ]
    message = ".".join(map(encoded, parts))
    return f"{message}.{encoded(HMACAlgorithm(HMACAlgorithm.SHA256).sign(message.encode(), secret))}"


def refusal(token: str, tokens: ExecutionTokens | None = None) -> str:
    with pytest.raises(InvalidToken) as caught:
        (tokens or ExecutionTokens(ring())).verify(token)
    assert caught.value.__cause__ is None
    return str(caught.value)


@pytest.mark.parametrize("algorithm", KEYS)
def test_what_is_issued_is_verified_by_who_has_only_the_public_key(algorithm: Algorithm) -> None:
    private, public = KEYS[algorithm]
    clock = Clock()
    token = ExecutionTokens(ring(Key("k", private, algorithm), clock=clock)).issue("e-1", CONTEXT, ttl_seconds=60)
    verifier = ExecutionTokens(ring(Key("k", public, algorithm), clock=clock))
    claims = verifier.verify(token)
    assert claims == Claims(
        execution_id="e-1",
        user_id="ada",
        organization_id="acme",
        session_id="s-1",
        scopes=frozenset({"mail:send", "read"}),
        expires_at=NOW + 60,
        token_id=claims.token_id,
    )
    assert verifier.verify(token) is claims  # from the cache
    assert verifier.verify(ExecutionTokens(ring(Key("k", private, algorithm))).issue("e-1", CONTEXT)) != claims


def test_a_token_has_the_claims_that_the_protocol_names() -> None:
    header, payload, _ = ExecutionTokens(ring()).issue("e-1", CONTEXT).split(".")
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == HEADER
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    assert claims == PAYLOAD | {"org": "acme", "scope": "mail:send read", "exp": NOW + 300, "jti": claims["jti"]}


@pytest.mark.parametrize(
    ("token", "message"),
    [
        ("", "the token is missing"),
        ("a" * (MAX_TOKEN_BYTES + 1), "too long"),
        ("a.b", "malformed"),
        ("a.b.c.d", "malformed"),
        (forged() + "\n", "malformed"),
        (forged() + "=", "malformed"),
        ("ü" + forged(), "malformed"),
        (forged().replace(".", "..", 1), "malformed"),
        ("a" + forged(), "malformed"),
        (forged("[]"), "malformed"),
        (forged("{"), "malformed"),
        (forged("[" * 5000), "malformed"),
        (forged(b'{"alg":"HS256","kid":"\xff","typ":"corral-execution+jwt"}'), "malformed"),
        (forged(HEADER | {"crit": ["exp"]}), "malformed"),
        (forged(HEADER | {"jwk": {"kty": "oct", "k": encoded(SECRET)}}), "header is not an execution"),
        (forged(HEADER | {"jku": "http://127.0.0.1/keys"}), "header is not an execution"),
        (forged(HEADER | {"x5u": "http://127.0.0.1/keys"}), "header is not an execution"),
        (forged(HEADER | {"b64": False}), "malformed"),
        (f"{encoded(json.dumps(HEADER | {'b64': False}).encode())}..{forged().split('.')[2]}", "header is not an execution"),
        (forged({"alg": "HS256", "typ": HEADER["typ"]}), "header is not an execution"),
        (forged(HEADER | {"typ": "JWT"}), "another type"),
        (forged(HEADER | {"kid": "two"}), "key of the token is unknown"),
        (forged(HEADER | {"kid": ["one"]}), "malformed"),
        (forged(HEADER | {"alg": "none"}), "algorithm does not match its key"),
        (forged(HEADER | {"alg": "hs256"}), "algorithm does not match its key"),
        (forged(HEADER | {"alg": None}), "algorithm does not match its key"),
        (forged(secret=bytes(32)), "signature is wrong"),
        (forged(payload=PAYLOAD | {"nbf": float("nan")}), "claim nbf has the wrong type"),
        (forged(payload=[PAYLOAD]), "malformed"),
        (forged(payload=PAYLOAD | {"exp": NOW}), "has expired"),
        (forged(payload=PAYLOAD | {"nbf": NOW + 6}), "not valid yet"),
        (forged(payload=PAYLOAD | {"iat": NOW + 6}), "not valid yet"),
        (forged(payload=PAYLOAD | {"exp": NOW + 301}), "lives longer than 300 s"),
        (forged(payload=PAYLOAD | {"exp": 10**400}), "claim exp has the wrong type"),
        (forged(payload=PAYLOAD | {"exp": 10**30}), "lives longer than 300 s"),
        (forged(payload=PAYLOAD | {"iat": -(10**400), "exp": 10**400}), "claim iat has the wrong type"),
        (forged(payload="[" * 5000), "malformed"),
        (forged(payload=PAYLOAD | {"aud": "corral:other"}), "audience is not this bridge"),
        (forged(payload=PAYLOAD | {"aud": ["corral:bridge"]}), "claim aud has the wrong type"),
        (forged(payload=PAYLOAD | {"iss": "other"}), "issuer is not this bridge's"),
        (forged(payload=PAYLOAD | {"exp": str(NOW)}), "claim exp has the wrong type"),
        (forged(payload=PAYLOAD | {"iat": True}), "claim iat has the wrong type"),
        (forged(payload=PAYLOAD | {"org": 1}), "claim org has the wrong type"),
        (forged(payload=PAYLOAD | {"scope": ["read"]}), "claim scope has the wrong type"),
        *((forged(payload={k: v for k, v in PAYLOAD.items() if k != name}), f"lacks the claim {name}") for name in PAYLOAD),
    ],
)  # fmt: skip
def test_a_token_that_is_wrong_in_one_way_is_refused_by_name(token: str, message: str) -> None:
    assert message in refusal(token)


def test_a_forger_with_the_secret_is_believed_so_that_the_refusals_above_have_one_reason_each() -> None:
    assert ExecutionTokens(ring()).verify(forged()).execution_id == "e-1"
    assert ExecutionTokens(ring()).verify(forged(payload=PAYLOAD | {"iat": NOW + 5, "exp": int(NOW) + 305}))


@pytest.mark.parametrize("algorithm", ["EdDSA", "ES256"])
def test_a_public_key_is_no_secret_to_sign_with(algorithm: Algorithm) -> None:
    _, public = KEYS[algorithm]
    tokens = ExecutionTokens(ring(Key("one", public, algorithm)))
    assert "algorithm does not match" in refusal(forged(secret=public), tokens)
    assert "signature is wrong" in refusal(forged(HEADER | {"alg": algorithm}, secret=public), tokens)


@pytest.mark.parametrize("algorithm", KEYS)
def test_no_other_spelling_of_a_signature_is_taken(algorithm: Algorithm) -> None:
    tokens = ExecutionTokens(ring(Key("one", KEYS[algorithm][0], algorithm)))
    token = tokens.issue("e-1", CONTEXT)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    for character in alphabet:
        if character != token[-1]:
            refusal(token[:-1] + character, tokens)
    assert "malformed" in refusal(token[:-1] + alphabet[alphabet.index(token[-1]) ^ 1], tokens)


ISSUED = {
    algorithm: ExecutionTokens(ring(Key("one", private, algorithm))).issue("e-1", CONTEXT)
    for algorithm, (private, _) in KEYS.items()
}


@given(st.sampled_from(list(KEYS)), st.data())
@settings(max_examples=examples(60))
def test_a_token_with_any_one_character_changed_is_refused(algorithm: Algorithm, data: st.DataObject) -> None:
    token = ISSUED[algorithm]
    at = data.draw(st.integers(0, len(token) - 1))
    new = data.draw(st.one_of(st.characters(max_codepoint=127), st.characters()).filter(lambda each: each != token[at]))
    tokens = ExecutionTokens(ring(Key("one", KEYS[algorithm][1], algorithm)))
    tokens.verify(token)
    refusal(token[:at] + new + token[at + 1 :], tokens)


@given(
    st.text(),
    st.text(),
    st.none() | st.text(),
    st.text(),
    st.frozensets(st.text(min_size=1, max_size=50).filter(lambda text: text.split() == [text]), max_size=5),
)
@settings(max_examples=30)
def test_any_identity_comes_back_as_it_was(
    execution: str, user: str, organization: str | None, session: str, scopes: frozenset[str]
) -> None:
    context = ExecutionContext(user_id=user, session_id=session, organization_id=organization, scopes=scopes)
    tokens = ExecutionTokens(ring())
    claims = tokens.verify(tokens.issue(execution, context))
    assert (claims.execution_id, claims.user_id, claims.session_id) == (execution, user, session)
    assert (claims.organization_id, claims.scopes) == (organization, scopes)


def test_a_token_expires_when_it_says_also_if_it_is_cached() -> None:
    clock = Clock()
    tokens = ExecutionTokens(ring(clock=clock), ttl_seconds=10)
    token = tokens.issue("e-1", CONTEXT)
    clock.now += 9.999
    assert tokens.verify(token).expires_at == NOW + 10
    clock.now = NOW + 10
    assert "has expired" in refusal(token, tokens)


def test_a_token_of_a_host_whose_clock_is_ahead_is_taken_within_five_seconds() -> None:
    ahead = Clock()
    ahead.now += 5
    tokens = ExecutionTokens(ring())
    assert tokens.verify(ExecutionTokens(ring(clock=ahead)).issue("e-1", CONTEXT)).expires_at == NOW + 305
    ahead.now += 0.01
    assert "not valid yet" in refusal(ExecutionTokens(ring(clock=ahead)).issue("e-1", CONTEXT), tokens)


def test_a_rotated_key_verifies_until_the_overlap_is_over_also_from_the_cache() -> None:
    clock = Clock()
    keys = ring(clock=clock)
    tokens = ExecutionTokens(keys)
    old = tokens.issue("e-1", CONTEXT)
    tokens.verify(old)
    keys.rotate(Key("two", SECRET[::-1]), overlap_seconds=20)
    new = tokens.issue("e-1", CONTEXT)
    assert json.loads(base64.urlsafe_b64decode(new.split(".")[0] + "=="))["kid"] == "two"
    clock.now += 19.9
    assert tokens.verify(old).execution_id == tokens.verify(new).execution_id
    clock.now += 0.1
    assert "key of the token is unknown" in refusal(old, tokens)
    assert tokens.verify(new).execution_id == "e-1"


def test_a_later_rotation_does_not_lengthen_an_earlier_overlap() -> None:
    clock = Clock()
    keys = ring(clock=clock)
    tokens = ExecutionTokens(keys)
    first = tokens.issue("e-1", CONTEXT)
    keys.rotate(Key("two", SECRET[::-1]), overlap_seconds=10)
    keys.rotate(Key("three", bytes(32)), overlap_seconds=100)
    clock.now += 10
    assert "unknown" in refusal(first, tokens)
    keys.rotate(Key("one", b"another secret of 32 bytes......"), overlap_seconds=0)  # the name is free again
    assert "signature is wrong" in refusal(first, tokens)


def test_a_key_of_the_same_name_does_not_inherit_the_cache() -> None:
    keys = ring()
    tokens = ExecutionTokens(keys)
    token = tokens.issue("e-1", CONTEXT)
    tokens.verify(token)
    keys.rotate(Key("two", SECRET[::-1]), overlap_seconds=0)
    keys.rotate(Key("one", bytes(32)), overlap_seconds=0)
    assert "unknown" in refusal(token, tokens)


def test_the_first_key_that_can_sign_signs_and_all_verify() -> None:
    public = Key("public", ED25519[1], "EdDSA")
    clock = Clock()
    tokens = ExecutionTokens(ring(public, Key("one", SECRET), Key("two", SECRET[::-1]), clock=clock))
    assert tokens.issue("e-1", CONTEXT).startswith(encoded(json.dumps(HEADER, separators=(",", ":")).encode()))
    foreign = ExecutionTokens(ring(Key("public", ED25519[0], "EdDSA"), clock=clock))
    assert tokens.verify(foreign.issue("e-2", CONTEXT)).execution_id == "e-2"
    with pytest.raises(ConfigError, match="no key of the ring can sign"):
        ExecutionTokens(ring(public)).issue("e-1", CONTEXT)


def test_the_cache_is_bounded_and_forgetting_does_not_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.calls.tokens._CACHED", 3)
    tokens = ExecutionTokens(ring())
    issued = [tokens.issue(f"e-{number}", CONTEXT) for number in range(10)]
    for _ in range(2):
        assert [tokens.verify(token).execution_id for token in issued] == [f"e-{number}" for number in range(10)]
    assert len(tokens._verified) == 3  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Key("", SECRET), "1 to 200 characters"),
        (lambda: Key("k", b"short"), "at least 32 bytes"),
        (lambda: Key("k", ED25519[1]), "a PEM is for EdDSA or ES256"),
        (lambda: Key("k", SECRET, "RS256"), "algorithm takes .*, not 'RS256'"),  # pyright: ignore[reportArgumentType]
        (lambda: Key("k", SECRET, "ES256"), "not a PEM of an ES256 key"),
        (lambda: Key("k", SECRET, "EdDSA"), "not a PEM of an EdDSA key"),
        (lambda: Key("k", ED25519[0], "ES256"), "not a PEM of an ES256 key"),
        (lambda: Key("k", pem(rsa.generate_private_key(65537, 2048))[0], "ES256"), "not a PEM of an ES256 key"),
        (lambda: Key("k", pem(ec.generate_private_key(ec.SECP384R1()))[0], "ES256"), "ES256"),
        (lambda: KeyRing(), "at least one key"),
        (lambda: KeyRing(Key("k", SECRET), Key("k", bytes(32))), "the same name"),
        (lambda: KeyRing(Key("k", SECRET)).rotate(Key("k", bytes(32))), "'k' is in use"),
        (lambda: KeyRing(Key("k", SECRET)).rotate(Key("l", bytes(32)), float("nan")), "overlap_seconds"),
        (lambda: ExecutionTokens(ttl_seconds=301), "at most 300"),
        (lambda: ExecutionTokens(ttl_seconds=float("nan")), "at most 300"),
        (lambda: ExecutionTokens().issue("e", CONTEXT, ttl_seconds=0), "more than 0"),
        (lambda: ExecutionTokens().issue("e", ExecutionContext(scopes=["a b"])), "'a b' cannot be in a token"),
        (lambda: ExecutionTokens().issue("e", ExecutionContext(scopes=["a\u2003"])), "cannot be in a token"),
        (lambda: ExecutionTokens().issue("e", ExecutionContext(scopes=[""])), "cannot be in a token"),
        (lambda: ExecutionTokens().issue("e", ExecutionContext(user_id="u" * 9000)), "over 8192"),
        (lambda: KeyRing.from_text("hunter2hunter2hunter2"), "kid:secret"),
        (lambda: KeyRing.from_text("k:hunter2!"), "kid:secret"),
        (lambda: KeyRing.from_text("k:aHVudGVyMg=="), "at least 32 bytes"),
    ],
)  # fmt: skip
def test_a_wrong_set_up_is_said_at_once_and_shows_no_key(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        make()
    assert caught.value.__cause__ is None
    assert "hunter2" not in str(caught.value)
    assert "BEGIN" not in str(caught.value)


def test_keys_can_come_from_a_text_and_are_never_shown() -> None:
    secrets = base64.b64encode(SECRET).decode(), base64.b64encode(SECRET[::-1]).decode()
    keys = KeyRing.from_text(f"one:{secrets[0]}, two:{secrets[1]}", clock=Clock())
    assert ExecutionTokens(keys).verify(forged()).execution_id == "e-1"
    assert repr(keys) == "KeyRing(Key('one', 'HS256'), Key('two', 'HS256'))"


def test_generated_rings_differ() -> None:
    token = ExecutionTokens().issue("e-1", CONTEXT)
    assert "unknown" in refusal(token, ExecutionTokens(KeyRing.generate()))


def test_without_the_extra_the_error_names_it() -> None:
    code = "import sys; sys.modules['jwt.algorithms'] = None; import corral, corral.calls.tokens"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MissingExtra: an execution token needs the module jwt.algorithms: pip install 'corral[http]'" in done.stderr


# --- the environment


def test_the_secret_of_the_environment_signs_for_every_host_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOL_BRIDGE_SECRET", "a secret of the environment, 36 bytes")
    token = ExecutionTokens().issue("e-1", CONTEXT)
    assert ExecutionTokens().verify(token).execution_id == "e-1"
    monkeypatch.setenv("TOOL_BRIDGE_SECRET", "another one of the environment, so long")
    assert "signature" in refusal(token, ExecutionTokens())
    monkeypatch.delenv("TOOL_BRIDGE_SECRET")
    assert "unknown" in refusal(token, ExecutionTokens())


@pytest.mark.parametrize("secret", ["", "short-and-secret", "x" * 31])
def test_a_secret_of_the_environment_that_is_too_short_is_refused_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    monkeypatch.setenv("TOOL_BRIDGE_SECRET", secret)
    with pytest.raises(ConfigError, match="TOOL_BRIDGE_SECRET has under 32 bytes") as raised:
        ExecutionTokens()
    assert not secret or secret not in str(raised.value)
    ExecutionTokens(KeyRing.generate())
