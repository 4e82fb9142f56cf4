"""Result of a check without a run."""

from __future__ import annotations

from dataclasses import dataclass

from corral.rendering.preview import preview_text
from corral.types import Diagnostic, Language

__all__ = ["CheckResult"]


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The outcome of a check: what is wrong with a program, as far as can be told without running it.

    `checked` tells if a language server has looked at it; without that, only what cannot be a program is found.
    """

    language: Language
    checked: bool
    unchecked: str | None = None
    """The reason that no language server has looked at it, as a clause."""
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def passed(self) -> bool:
        """True if it would run: nothing but remarks was found."""
        return all(each.severity != "error" for each in self.diagnostics)

    def model_text(self, max_chars: int = 50_000) -> str:
        """The text for a model: findings that keep the program from running, and then the rest."""
        errors = [_line(each) for each in self.diagnostics if each.severity == "error"]
        notes = [f"- {_line(each)}" for each in self.diagnostics if each.severity != "error"]
        if errors:
            parts = ["\n".join(["The program would not run.", *errors])]
        elif self.checked:
            parts = ["The program fits the declarations."]
        else:
            reason = f": {self.unchecked}" if self.unchecked else ""
            parts = [f"The program can be read. Its types were not checked{reason}."]
        if notes:
            parts.append("\n".join(["Notes:", *notes]))
        return "\n\n".join(preview_text(part, max_chars) for part in parts)


def _line(remark: Diagnostic) -> str:
    return f"{'' if remark.line is None else f'line {remark.line}, column {remark.column}: '}{remark.message}"
