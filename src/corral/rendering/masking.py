"""Masks secrets in texts and bodies from elsewhere, because servers may echo requests."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from urllib.parse import quote

_SHOWN = b"[redacted]"
_LEAST_SECRET = 4
"""Minimum length of a text that is masked. Shorter ones occur everywhere."""
_PAIR_VALUE = re.compile(r"=([^\s;,=]+)")
"""The value of a part of a header, such as that of a cookie."""


class Mask:
    """Replaces secrets in texts and bodies, ignoring case, because header and host names arrive in lower case.

    `secrets` are values that were sent, such as those of headers. Their parts are masked too, and the forms in which a
    server could echo them.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for each in secrets for form in _forms(each)}
        self._secrets = sorted((each.encode(errors="surrogatepass").lower() for each in forms), key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._secrets)), re.IGNORECASE)

    def __bool__(self) -> bool:
        return bool(self._secrets)

    def text(self, text: str) -> str:
        """Returns the text without secrets."""
        return self.data(text.encode(errors="surrogatepass")).decode(errors="surrogatepass")

    def data(self, data: bytes) -> bytes:
        """Returns the bytes without secrets."""
        return self._pattern.sub(_SHOWN, data) if self._secrets else data

    def split(self, data: bytes) -> tuple[bytes, bytes]:
        """Returns the bytes without secrets, and separately an end that can be the beginning of a secret."""
        data = self.data(data)
        end = data[-max(map(len, self._secrets), default=0) :].lower()
        held = max((_overlap(end, secret) for secret in self._secrets), default=0)
        return (data[:-held], data[-held:]) if held else (data, b"")


def _forms(value: str) -> set[str]:
    """Returns a secret, its parts without a scheme such as Bearer, and the forms in which a server could echo them."""
    words = value.split()
    forms = {value, *words[1:], *_PAIR_VALUE.findall(value)}
    if len(words) == 2 and words[0].lower() == "basic":
        try:
            pair = base64.b64decode(words[1], validate=True).decode()
        except ValueError:
            pair = ""
        forms |= {pair, pair.partition(":")[2]}
    forms |= {json.dumps(each)[1:-1] for each in forms} | {quote(each, safe="", errors="replace") for each in forms}
    return {each for each in forms if len(each) >= _LEAST_SECRET}


def _overlap(data: bytes, secret: bytes) -> int:
    """Returns the length of the longest end of `data` that is a beginning of `secret`."""
    longest = min(len(secret) - 1, len(data))
    return next((size for size in range(longest, 0, -1) if data.endswith(secret[:size])), 0)
