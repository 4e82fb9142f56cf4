"""Finds images in programs' results, in the formats that tools use, and keeps them out of texts."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeAlias, cast

_MOST = 20
_MOST_BYTES = 20_000_000
"""Maximum bytes of all pictures together."""
_MOST_VISITED = 20_000
_DEEPEST = 50
_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
_MEDIA_TYPE = re.compile(r"image/[\w.+-]{1,50}")
_MEDIA_KEYS = ("mimeType", "mime_type", "media_type", "mediaType")
_DATA_KEYS = ("data", "base64", "blob", "bytes")
_OF_A_PICTURE = {*_MEDIA_KEYS, *_DATA_KEYS} | {
    "_meta", "annotations", "cache_control", "detail", "extras", "id", "identifier", "index", "kind", "size",
    "source_type", "type", "vendor_metadata",
}  # fmt: skip
"""An object with other members than these is more than a picture. As in MCP and agent frameworks."""
_DATA_URL = "data:image/"
_BYTES_START = r"(?:\\x89PNG|\\xff\\xd8\\xff|GIF8[79]a)"
_IN_TEXT = re.compile(
    r"(?:data:image/[\w.+-]{1,50};base64,)?"
    r"(?P<start>iVBORw0KGgo|/9j/|R0lGOD[dl]h|UklGR)(?P<rest>[A-Za-z0-9+/_-]{200,}={0,2})"
    rf"|b'{_BYTES_START}(?:[^'\\\n]|\\.){{200,}}'?"
    rf'|b"{_BYTES_START}(?:[^"\\\n]|\\.){{200,}}"?'
)
_BY_START = {"iVBO": "image/png", "/9j/": "image/jpeg", "R0lG": "image/gif", "UklG": "image/webp"}


@dataclass(frozen=True, slots=True)
class Picture:
    """Picture; as a string it is `[picture image/png, 12,345 bytes]`."""

    data: bytes = field(repr=False)
    media_type: str

    @property
    def is_common(self) -> bool:
        """True for the formats that all models with vision accept: PNG, JPEG, GIF, WebP."""
        return image_type(self.data) is not None

    @property
    def base64(self) -> str:
        return b64encode(self.data).decode()

    @property
    def url(self) -> str:
        """Data URL of the picture."""
        return f"data:{self.media_type};base64,{self.base64}"

    def __str__(self) -> str:
        return f"[picture {self.media_type}, {len(self.data):,} bytes]"


Marker: TypeAlias = Callable[[Picture, int], object]
"""Placeholder of an image, numbered from 1."""


def pictures_in(value: Any, marker: Marker = lambda picture, _: str(picture)) -> tuple[Any, tuple[Picture, ...]]:
    """Replaces each picture in a value by `marker(...)`. Returns the new value and at most 20 pictures.

    Pictures are bytes with a known signature; objects with a media type and data, as in MCP and agent frameworks; and
    data URLs. A value without pictures is returned unchanged.
    """
    search = _Search(marker)
    return search.of(value, 0), tuple(search.found)


def without_pictures(text: str) -> str:
    """Removes pictures from printed text, in base64 or as Python's `repr` of bytes."""
    return _IN_TEXT.sub(_shortened, text)


def _shortened(match: re.Match[str]) -> str:
    if match["start"] is None:
        return "[picture, as bytes]"
    return f"[picture {_BY_START[match['start'][:4]]}, {(len(match['start']) + len(match['rest'])) * 3 // 4:,} bytes]"


def image_type(data: bytes) -> str | None:
    """Returns the media type of bytes that begin like a PNG, JPEG, GIF or WebP; None for others."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _SIGNATURES.items() if data.startswith(start)), None)


class _Search:
    def __init__(self, marker: Marker) -> None:
        self.found: list[Picture] = []
        self._marker = marker
        self._room = _MOST_BYTES
        self._visits = _MOST_VISITED

    def of(self, value: Any, depth: int) -> Any:
        self._visits -= 1
        if self._visits < 0 or depth > _DEEPEST:
            return value
        match value:
            case str():
                return self._url(value) if value.startswith(_DATA_URL) else value
            case dict():
                return self._object(cast("dict[Any, Any]", value), depth)
            case list() | tuple():
                items = cast("list[Any]", value)
                inside = [self.of(item, depth + 1) for item in islice(items, max(self._visits, 0))]
                changed = any(new is not old for new, old in zip(inside, items, strict=False))
                return [*inside, *items[len(inside) :]] if changed else items
            case bytes() | bytearray():
                data = bytes(value)
                return value if (kind := image_type(data)) is None else self._marked(Picture(data, kind))
            case _:
                return value

    def _object(self, members: dict[Any, Any], depth: int) -> Any:
        key = next((key for key in _DATA_KEYS if isinstance(members.get(key), str | bytes | bytearray)), None)
        declared = next((members[key] for key in _MEDIA_KEYS if isinstance(members.get(key), str)), None)
        if key is not None and (declared is not None or members.get("type") == "image"):
            picture = _picture(members[key], declared)
            if picture is not None:
                marked = self._marked(picture)
                return marked if members.keys() <= _OF_A_PICTURE else {**members, key: marked}
        first = islice(members.items(), max(self._visits, 0))
        inside = {key: new for key, old in first if (new := self.of(old, depth + 1)) is not old}
        return members | inside if inside else members

    def _url(self, url: str) -> Any:
        head, _, data = url.partition(",")
        kind, *options = head.removeprefix("data:").split(";")
        picture = _picture(data, kind) if "base64" in options else None
        return url if picture is None else self._marked(picture)

    def _marked(self, picture: Picture) -> object:
        self._room -= len(picture.data)
        if len(self.found) == _MOST or self._room < 0:
            return f"{str(picture)[:-1]}, one too many to be shown]"
        self.found.append(picture)
        return self._marker(picture, len(self.found))


def _picture(data: str | bytes | bytearray, declared: str | None) -> Picture | None:
    """Returns the picture, if it is one. The type that the bytes show overrides the declared type."""
    read = _decoded(data) if isinstance(data, str) else bytes(data)
    if not read:
        return None
    kind = image_type(read)
    if kind is None and declared is not None and _MEDIA_TYPE.fullmatch(declared):
        kind = declared
    return None if kind is None else Picture(read, kind)


def _decoded(text: str) -> bytes:
    """Decodes base64 in either alphabet, with or without padding and line ends; empty if it is invalid."""
    digits = "".join(text.split()).rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return b64decode(digits + "=" * (-len(digits) % 4), validate=True)
    except ValueError:
        return b""
