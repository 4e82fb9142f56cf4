"""Responses to requests that failed as a whole: `{"error": {...}}`."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic_core import to_json
from starlette.responses import Response

from corral.bridges.web import error_content, refusal_headers, status_of
from corral.errors import CorralError
from corral.types import CallError


def failed(
    error: CallError | CorralError, status: int | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """Returns the response to a failed request. `status` replaces the error's own."""
    if not isinstance(error, CallError):
        error = CallError.of(error)
    status = status or status_of(error)
    sent = {**refusal_headers(error, status), **(headers or {})}
    return Response(to_json({"error": error_content(error)}), status, sent, media_type="application/json")
