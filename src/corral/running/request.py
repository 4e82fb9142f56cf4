"""Request to run a program: plain data that can be stored, sent, and run in another process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias

from pydantic import Field, field_serializer, field_validator

from corral.types import ExecutionContext, Frozen, Language, Limits

CheckMode: TypeAlias = Literal["auto", "required", "off"]
"""`auto`: programs are type-checked before their first call if a checker is available. `required`: a program that
cannot be checked does not run. `off`: programs are not checked."""

Check: TypeAlias = CheckMode | bool
"""Check mode, or a boolean: True means `auto`, False `off`."""


_EXECUTION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


def check_mode(check: Check) -> CheckMode:
    """Converts a mode or a boolean to a mode."""
    return ("auto" if check else "off") if isinstance(check, bool) else check


class ExecutionRequest(Frozen):
    """Request to run one program. `Corral.execute` accepts it instead of a source.

    It has a JSON form (`model_dump_json`, `model_validate_json`) and can be pickled; only `context.local` is left out.
    None in `limits`, `check` and `hide_denied` stands for the setting of the Corral that runs it.
    """

    source: str = Field(repr=False)
    """The model's whole answer."""
    language: Language = "typescript"
    compiler: str | None = None
    """Name of a compiler in `Corral(compilers=...)`. None, "typescript" and "javascript" need no compiler."""
    context: ExecutionContext = Field(default_factory=ExecutionContext)
    """Caller of the program."""
    limits: Limits | None = None
    env: Mapping[str, str] | None = Field(default=None, repr=False)
    """All environment variables that the program sees; None hides even an empty environment."""
    check: Check | None = None
    hide_denied: bool | None = None
    """True hides tools that the caller lacks scopes for."""
    asked: tuple[str, ...] = Field(default=(), repr=False)
    """Texts that persons have written in the conversation so far. A policy that follows data allows the destinations
    that they name. Not attachments, nor texts of tools."""
    tool_call_id: str | None = None
    """Agent framework's id of the model's tool call that sent the program, for the events."""
    durable: bool = False
    """True records the execution in the Corral's ledger, so that it can pause and be resumed."""
    after: str | None = None
    """Id of an ended durable execution of the same user: changes that it made are not repeated by the same calls. The
    new execution is durable too."""

    execution_id: str | None = None
    """Id of a durable execution, for callers that try again: if the ledger has it, its recorded result is returned, or
    it is continued. It must be unique for as long as the ledger keeps the execution."""

    @field_validator("asked", mode="before")
    @classmethod
    def _are_texts(cls, texts: object) -> object:
        if isinstance(texts, str):
            raise ValueError("asked is a collection of strings, not one string")
        return texts

    @field_validator("execution_id")
    @classmethod
    def _is_an_id(cls, name: str | None) -> str | None:
        if name is not None and not _EXECUTION_ID.fullmatch(name):
            raise ValueError("use 1 to 128 letters, digits and . _ : -, beginning with a letter or a digit")
        return name

    @field_serializer("source", when_used="json")
    def _as_unicode(self, source: str) -> str:
        """Replaces lone surrogates, which JSON cannot carry. Recovery would replace them anyway."""
        return source.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
