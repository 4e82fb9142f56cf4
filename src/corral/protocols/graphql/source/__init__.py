"""Queries and mutations of a GraphQL service as tools. Needs the extra `graphql`."""

from __future__ import annotations

from corral.errors import MissingExtra

try:
    import graphql  # noqa: F401  # pyright: ignore[reportUnusedImport]
    import httpx  # noqa: F401  # pyright: ignore[reportUnusedImport]
except ModuleNotFoundError as error:
    raise MissingExtra(
        f"corral.protocols.graphql.source needs the module {error.name}: pip install 'corral[graphql]'"
    ) from error
from corral.protocols.graphql.source.source import GraphqlApi

__all__ = ["GraphqlApi"]
