"""Sealed values: without a key, they cannot be read, altered, or moved to another row."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from corral.errors import ConfigError, LedgerDamaged, requires_extra

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEYS_VARIABLE = "CORRAL_LEDGER_KEYS"
_SIZES = (16, 24, 32)
_NONCE_BYTES = 12
_MOST_NAME_BYTES = 32


def keys_of(environment: Mapping[str, str]) -> dict[str, bytes]:
    """Reads the keys in `CORRAL_LEDGER_KEYS`: `NAME=BASE64`, separated by commas. The first one seals.

    Raises:
        ConfigError: the variable is not set, or malformed. The message does not quote it, because a key without
            a name looks like a name.
    """
    text = environment.get(KEYS_VARIABLE, "")
    keys: dict[str, bytes] = {}
    for number, part in enumerate(filter(None, (part.strip() for part in text.split(","))), 1):
        name, _, value = part.partition("=")
        try:
            key = base64.b64decode(value, validate=True)
        except binascii.Error:
            key = b""
        if len(key) not in _SIZES or not 0 < len(name.encode()) <= _MOST_NAME_BYTES:
            raise ConfigError(f"{KEYS_VARIABLE}: key {number} is not NAME=BASE64 of 16, 24 or 32 bytes")
        if name in keys:
            raise ConfigError(f"{KEYS_VARIABLE}: key {number} has the name of an earlier one")
        keys[name] = key
    if not keys:
        raise ConfigError(
            f"a ledger needs keys to seal its values: set {KEYS_VARIABLE} to NAME=BASE64 of 32 random bytes, or pass "
            "keys={name: bytes}; keys={} stores values in clear"
        )
    return keys


class Ring:
    """Named keys for AES-GCM: the first one seals, and all of them open. Without keys, values are stored in plain text.

    Raises:
        ConfigError: a name or a key has the wrong length.
        MissingExtra: `cryptography` is not installed.
    """

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._keys: dict[bytes, AESGCM] = {}
        if not keys:
            return
        with requires_extra("sealing a ledger", "ledger"):
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        self._invalid = InvalidTag
        for number, (name, key) in enumerate(keys.items(), 1):
            if not 0 < len(name.encode()) <= _MOST_NAME_BYTES or len(key) not in _SIZES:
                raise ConfigError(
                    f"key {number} of the ledger needs a name of 1 to {_MOST_NAME_BYTES} bytes and 16, 24 or 32 bytes"
                )
            self._keys[name.encode()] = AESGCM(key)
        name = next(iter(self._keys))
        self._prefix = bytes([len(name)]) + name
        self._sealing = self._keys[name]

    def seal(self, data: bytes, place: str) -> bytes:
        """Seals a value for one location, which has to be named again to open it."""
        if not self._keys:
            return b"\0" + data
        nonce = os.urandom(_NONCE_BYTES)
        return self._prefix + nonce + self._sealing.encrypt(nonce, data, place.encode())

    def open(self, sealed: bytes, place: str) -> bytes:
        """Opens a value.

        Raises:
            LedgerDamaged: the value was altered or sealed for another location, or its key is gone.
        """
        sealed = sealed if type(sealed) is bytes else b""  # SQLite's columns can have values of any type
        size = sealed[0] if sealed else 0
        name = sealed[1 : 1 + size]
        if size == 0 and not self._keys and sealed:
            return sealed[1:]
        shown = place.replace("\0", " ")
        if (key := self._keys.get(name)) is None:
            reason = f"the ledger has no key {name.decode(errors='replace')!r} any more" if size else "it is not sealed"
            raise LedgerDamaged(f"{shown} cannot be read: {reason}")
        start = 1 + size
        try:
            return key.decrypt(sealed[start : start + _NONCE_BYTES], sealed[start + _NONCE_BYTES :], place.encode())
        except (self._invalid, ValueError):
            reason = f"was altered, or belongs elsewhere, or was sealed with another key {name.decode()!r}"
            remedy = f"set {KEYS_VARIABLE} or keys= to the key that the ledger was written with"
            raise LedgerDamaged(f"{shown} {reason}: {remedy}") from None
