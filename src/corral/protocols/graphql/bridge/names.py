"""Names that GraphQL allows: `[_A-Za-z][_0-9A-Za-z]*`, without two underscores at the start."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import lru_cache
from hashlib import sha256

_NAME = re.compile(r"(?!__)[_A-Za-z][_0-9A-Za-z]*")
_OTHER = re.compile(r"[^_0-9A-Za-z]")
_MOST_CHARACTERS = 100


@lru_cache(maxsize=4_096)
def is_name(text: str) -> bool:
    return len(text) <= _MOST_CHARACTERS and _NAME.fullmatch(text) is not None


def distinct_names(names: Iterable[str], reserved: Collection[str] = ()) -> dict[str, str]:
    """Maps each name to one that GraphQL allows: itself, or else a similar one with a hash of the original."""
    originals = list(names)
    distinct = {name: name for name in originals if name not in reserved and is_name(name)}
    for name in originals:
        if name not in distinct:
            digest = sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
            similar = _OTHER.sub("_", name).strip("_")[: _MOST_CHARACTERS - 10]
            distinct[name] = (
                f"{similar}_{digest}" if similar[:1].isalpha() else f"_{similar}_{digest}".replace("__", "_")
            )
    return distinct


@lru_cache(maxsize=4_096)
def type_name(text: str) -> str:
    """Returns a name for a type: `foo-bar` becomes `FooBar`."""
    joined = "".join(word[:1].upper() + word[1:] for word in _OTHER.sub(" ", text).replace("_", " ").split())
    joined = joined[:_MOST_CHARACTERS]
    return joined if joined[:1].isalpha() else f"Type{joined}"
