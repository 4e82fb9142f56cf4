"""Files of a session as downloads or images: only those that an execution made or changed, and never as a page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from corral import Corral, ExecutionContext
from corral.errors import CorralError
from corral.rendering.images import image_type

_GONE = "the file is no longer there"


async def download(
    corral: Corral,
    context: ExecutionContext,
    execution: Mapping[str, Any],
    path: str,
    most_bytes: int,
    *,
    as_image: bool,
) -> Response:
    """Returns a file that an execution of this caller made or changed, as it is now.

    Raises:
        HTTPException: the execution did not write it, it is gone, it has more than `most_bytes`, or it is to be shown
            as an image and does not begin as a PNG, JPEG, WebP or GIF.
    """
    files: Mapping[str, list[str]] = execution.get("files") or {}
    if path not in (*files.get("created", ()), *files.get("changed", ())):
        raise HTTPException(404, "the execution wrote no such file")
    async with AsyncExitStack() as stack:
        session = context.model_copy(update={"session_id": execution.get("session")})
        try:
            found = await stack.enter_async_context(corral.session_files(session))
            entry = await found.stat(path)
            pieces = await found.read_stream(path)
        except CorralError as error:  # the Corral keeps no sessions, or the path is something else by now
            raise HTTPException(404, _GONE) from error
        if entry is None or pieces is None:
            raise HTTPException(404, _GONE)
        if entry.size > most_bytes:
            raise HTTPException(413, f"the file has {entry.size:,} bytes, over the bound of {most_bytes:,}")
        headers, media_type = _attachment(path), "application/octet-stream"
        if as_image:
            first = await anext(pieces, b"")
            kind = image_type(first)
            if kind is None:
                raise HTTPException(415, "the file is no image that the page shows")
            headers, media_type, pieces = {}, kind, _joined(first, pieces)
        return _Download(_bounded(pieces, most_bytes), media_type, headers, stack.pop_all())


class _Download(StreamingResponse):
    """Keeps the session open until the last byte has left."""

    def __init__(
        self, pieces: AsyncIterator[bytes], media_type: str, headers: Mapping[str, str], session: AsyncExitStack
    ) -> None:
        self._session = session
        super().__init__(pieces, media_type=media_type, headers=headers)

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._session:
            await super().__call__(scope, receive, send)


def _attachment(path: str) -> dict[str, str]:
    return {"content-disposition": f"attachment; filename*=UTF-8''{quote(path.rpartition('/')[2], safe='')}"}


async def _joined(first: bytes, others: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in others:
        yield piece


async def _bounded(pieces: AsyncIterator[bytes], most_bytes: int) -> AsyncIterator[bytes]:
    """Ends early where a program makes the file longer while it is read."""
    sent = 0
    async for piece in pieces:
        sent += len(piece)
        if sent > most_bytes:
            return
        yield piece
