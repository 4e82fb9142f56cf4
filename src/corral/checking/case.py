"""A program to check."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from hashlib import blake2b
from typing import TypeAlias

from tree_sitter import Node

from corral.concurrency.cached_property import cached_property
from corral.programs import TypedProgram, TypedPython, read_types
from corral.programs.syntax.parsing import INLINE_CHARS, INLINE_NODES, INLINE_SECONDS, TooLongToParse, parsing_within
from corral.tools import ToolRegistry
from corral.types import ExecutionContext, Language, Owner, Program, References

Caller: TypeAlias = tuple[Owner | None, str | None]
CaseKey: TypeAlias = tuple[bytes, bool, bool, bool]

_HEAVY_CHARS = 64_000
_MOST_NODES = 150_000


@dataclass
class Case:
    """A program and the facts it is checked against. It is parsed once, on first use."""

    program: Program
    tools: ToolRegistry
    _: KW_ONLY
    env: bool = False
    """True if the program has a `process` with its environment."""
    must: bool = False
    """True if the program must not run unchecked. It then waits longer for the check."""
    modules: bool = False
    """True if the program may load packages."""
    network: bool = False
    """True if the program may send requests."""
    lacks: Mapping[str, str] = field(default_factory=dict[str, str])
    """Globals that the program's engine lacks, each with the remedy: see `Capabilities.lacks`."""
    context: ExecutionContext | None = None
    """Context of the program's caller."""

    @cached_property
    def owner(self) -> Owner | None:
        """Owner of the program. All programs of an owner share one turn at a server."""
        context = self.context
        return None if context is None else context.owner

    @property
    def caller(self) -> Caller:
        """Owner, and the session if the host set `session_id`."""
        context = self.context
        return self.owner, None if context is None else context.session_id

    @property
    def source(self) -> str:
        return self.program.source

    @property
    def language(self) -> Language:
        return self.program.language

    @property
    def references(self) -> References | None:
        return self.program.references

    @cached_property
    def typed(self) -> TypedProgram | TypedPython | None:
        """Tree of the program; None if it does not parse completely.

        Raises:
            TooLongToParse: see `parsing_within`.
        """
        return read_types(self.program)

    @cached_property
    def is_light(self) -> bool:
        """True if the program is small enough to parse on an event loop. Reading this property parses it."""
        if len(self.source) > INLINE_CHARS or self._nodes > INLINE_NODES:
            return False
        with contextlib.suppress(TooLongToParse), parsing_within(INLINE_SECONDS):
            _ = self.typed
            return True
        return False

    @cached_property
    def is_heavy(self) -> bool:
        """True if parsing takes tenths of a second."""
        return len(self.source) > _HEAVY_CHARS or not (self.is_light or len(self.source) > INLINE_CHARS)

    @property
    def is_too_dense(self) -> bool:
        """True if walking the tree, which holds the GIL, takes tenths of a second."""
        return self._nodes > _MOST_NODES

    @property
    def _nodes(self) -> int:
        return 0 if self.program.typed is None else self.program.typed.nodes

    @cached_property
    def is_nameless(self) -> bool:
        """True if the program contains no identifier, so that no check can fail."""
        return self.typed is not None and not _names_something(self.typed.root)

    @cached_property
    def key(self) -> CaseKey:
        """Cache key among programs checked against the same tools."""
        typed = self.program.typed
        source = self.source.encode("utf-8", "surrogatepass")
        if typed is not None and typed.start >= 0:  # with the cells before it
            source = b"\0".join((source, typed.text[: typed.start], *map(str.encode, typed.unknown)))
        digest = blake2b(source, digest_size=16).digest()
        return digest, self.env, self.modules, self.network


def _names_something(root: Node) -> bool:
    """True if the program contains any identifier."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if "identifier" in node.type:
            return True
        waiting += node.named_children
    return False
