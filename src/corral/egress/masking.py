"""Secrets in what comes back: servers may send what they were sent."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Mask"]

_SHOWN = b"[redacted]"


class Mask:
    """Replaces secrets in texts and in bodies."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = sorted({each.encode() for each in secrets}, key=len, reverse=True)

    def __bool__(self) -> bool:
        return bool(self._secrets)

    def text(self, text: str) -> str:
        """The text without secrets."""
        return self.data(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def data(self, data: bytes) -> bytes:
        """The bytes without secrets."""
        for secret in self._secrets:
            data = data.replace(secret, _SHOWN)
        return data

    def split(self, data: bytes) -> tuple[bytes, bytes]:
        """The bytes without secrets, and the end that may be the beginning of one."""
        data = self.data(data)
        held = max((_overlap(data, secret) for secret in self._secrets), default=0)
        return (data[:-held], data[-held:]) if held else (data, b"")


def _overlap(data: bytes, secret: bytes) -> int:
    """Number of bytes at the end of `data` with which `secret` begins."""
    longest = min(len(secret) - 1, len(data))
    return next((size for size in range(longest, 0, -1) if data.endswith(secret[:size])), 0)
