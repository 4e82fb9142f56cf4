"""Schemas of tools that are built on first use: a program calls only a few of a thousand tools."""

from __future__ import annotations

from collections.abc import Callable

from corral.concurrency.cached_property import cached_property
from corral.errors import ToolDefinitionError, ToolError
from corral.tools.json_schema.document_schema import DocumentSchema
from corral.types import JsonSchema

_DIALECT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
"""Dialect of the built schemas, so that they are not searched for older forms."""


class DeferredSchema:
    """An input or an output schema that is built on first use."""

    runs_code = False

    def __init__(self, build: Callable[[], JsonSchema], *, owner: str) -> None:
        self._build = build
        self._owner = owner

    @property
    def json_schema(self) -> JsonSchema:
        return self._built

    @property
    def is_made(self) -> bool:
        """True once the schema has been built."""
        return "_built" in self.__dict__

    @cached_property
    def _built(self) -> JsonSchema:
        return self._build()

    @cached_property
    def _document(self) -> DocumentSchema:
        try:
            return DocumentSchema({**_DIALECT, **self._built}, owner=self._owner, foreign=True)
        except ToolDefinitionError as error:  # rare: documents were already checked
            raise ToolError(f"this tool cannot be called: {error}") from error

    def load(self, raw: object) -> object:
        return self._document.load(raw)

    def dump(self, value: object) -> object:
        return self._document.dump(value)
