"""Masks secrets in responses, because servers may echo requests."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SHOWN = b"[redacted]"


class Mask:
    """Replaces secrets in texts and bodies, ignoring case, because header and host names arrive in lower case."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = sorted({each.encode().lower() for each in secrets}, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._secrets)), re.IGNORECASE)

    def __bool__(self) -> bool:
        return bool(self._secrets)

    def text(self, text: str) -> str:
        """Returns the text without secrets."""
        return self.data(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def data(self, data: bytes) -> bytes:
        """Returns the bytes without secrets."""
        return self._pattern.sub(_SHOWN, data) if self._secrets else data

    def split(self, data: bytes) -> tuple[bytes, bytes]:
        """Returns the bytes without secrets, and separately an end that may be the beginning of a secret."""
        data = self.data(data)
        end = data[-max(map(len, self._secrets), default=0) :].lower()
        held = max((_overlap(end, secret) for secret in self._secrets), default=0)
        return (data[:-held], data[-held:]) if held else (data, b"")


def _overlap(data: bytes, secret: bytes) -> int:
    """Returns the length of the longest end of `data` with which `secret` begins."""
    longest = min(len(secret) - 1, len(data))
    return next((size for size in range(longest, 0, -1) if data.endswith(secret[:size])), 0)
