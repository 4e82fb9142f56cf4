"""Request to run a program: plain data that can be stored, sent, and run in another process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from pydantic import Field, field_serializer

from corral.types import ExecutionContext, Frozen, Language, Limits

CheckMode: TypeAlias = Literal["auto", "required", "off"]
"""`auto`: programs are type-checked before their first call if a checker is available. `required`: a program that
cannot be checked does not run. `off`: they are not checked."""

Check: TypeAlias = CheckMode | bool
"""True is `auto`, False `off`."""


def check_mode(check: Check) -> CheckMode:
    """Returns the mode for a mode or a boolean."""
    return ("auto" if check else "off") if isinstance(check, bool) else check


class ExecutionRequest(Frozen):
    """Request to run one program. `Corral.execute` accepts it instead of a source.

    It has a JSON form (`model_dump_json`, `model_validate_json`) and can be pickled; only `context.local` is left out.
    None in `limits`, `check` and `hide_denied` means the setting of the Corral that runs it.
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
    tool_call_id: str | None = None
    """Agent framework's id of the model's tool call that sent the program, for the events."""
    durable: bool = False
    """True records the execution in the Corral's ledger, so that it can pause and be resumed."""
    after: str | None = None
    """Id of a durable execution of the same user that has ended: changes that it has made by the same calls are not
    made again. The new execution is durable too."""

    @field_serializer("source", when_used="json")
    def _as_unicode(self, source: str) -> str:
        """Replaces lone surrogates, which JSON cannot carry; recovery replaces them anyway."""
        return source.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
