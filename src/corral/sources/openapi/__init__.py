"""Operations of an OpenAPI document as tools. Needs the extra `openapi`."""

from __future__ import annotations

from corral.errors import requires_extra

with requires_extra("corral.sources.openapi", "openapi"):
    # first, because corral.egress would name the wrong extra
    import httpx  # noqa: F401  # pyright: ignore[reportUnusedImport]

    from corral.sources.openapi.source import OpenApi
from corral.sources.openapi.security import ApiKey, Basic, Bearer, Credential
from corral.sources.openapi.source import Operation, Skipped

__all__ = ["ApiKey", "Basic", "Bearer", "Credential", "OpenApi", "Operation", "Skipped"]
