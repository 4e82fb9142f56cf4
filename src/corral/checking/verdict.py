"""Outcomes of checks, and their texts for results and models."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from corral.checking.findings import Finding
from corral.errors import ProgramRejected
from corral.rendering.lists import first_few
from corral.rendering.preview import preview_text
from corral.types import Diagnostic, Language, Position

_MAX_DIAGNOSTICS = 50
"""Maximum number of errors, and of warnings."""
_MAX_LISTED = 10
_ONCE = frozenset({"unawaited", "unbound", "absent"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of a check. A program with a `rejection` must not run."""

    diagnostics: tuple[Diagnostic, ...] = ()
    rejection: ProgramRejected | None = None
    unchecked: str | None = None
    """Reason why the program could not be checked, as a clause. All other fields are then empty."""
    is_own: bool = False
    """True if the program itself is the reason why it is unchecked."""
    is_of_results: bool = False
    """True if it is rejected only because of declared result types, which can be wrong."""

    def as_warnings(self) -> Verdict:
        return Verdict(tuple(replace(each, severity="warning") for each in self.diagnostics))


def verdict_on(findings: Iterable[Finding], locate: Callable[[int], Position], workaround: str = "") -> Verdict:
    """Combines findings into a verdict. `locate` maps an offset to the model's source.

    `workaround` is the advice for results whose declaration is wrong.
    """
    placed = [(locate(each.offset), each) for each in findings]
    placed.sort(key=lambda pair: (pair[0].line, pair[0].column))
    problems = _without_repeats((place, each) for place, each in placed if each.kind is not None)
    warnings = [(place, each) for place, each in placed if each.kind is None][:_MAX_DIAGNOSTICS]
    diagnostics = tuple(
        Diagnostic(
            severity="error" if each.kind else "warning",
            message=each.text(),
            code=each.code,
            line=place.line,
            column=place.column,
            show="always" if each.always and not each.kind else "on_failure",
        )
        for place, each in (*problems[:_MAX_DIAGNOSTICS], *warnings)
    )
    if not problems:
        return Verdict(diagnostics)
    is_of_results = all(each.kind == "member" for _, each in problems)
    rejection = _rejection(problems, workaround if is_of_results else "")
    return Verdict(diagnostics, rejection, is_of_results=is_of_results)


def _without_repeats(problems: Iterable[tuple[Position, Finding]]) -> list[tuple[Position, Finding]]:
    """Drops repeated problems about the same name or unawaited call.

    A declaration is shown only with the first problem about it.
    """
    kept: dict[object, tuple[Position, Finding]] = {}
    shown: set[str] = set()
    for place, each in problems:
        key = (each.kind, each.hint or each.message) if each.kind in _ONCE else (each.code, each.message, each.offset)
        if key not in kept:
            kept[key] = place, replace(each, declared=None) if each.declared in shown else each
            shown.update([each.declared] if each.declared else [])
    return list(kept.values())


def _rejection(problems: list[tuple[Position, Finding]], workaround: str) -> ProgramRejected:
    lines = [f"line {place.line}, column {place.column}: {each.text()}" for place, each in problems]
    count = "it does" if len(problems) == 1 else f"{len(problems)} places do"
    first = problems[0][0]
    what = "engine" if problems[0][1].kind == "absent" else "declarations"
    text = f"{count} not fit the {what}.\n" + "\n".join(
        [*first_few(lines, _MAX_LISTED), *([workaround] if workaround else [])]
    )
    return ProgramRejected(text, line=first.line, column=first.column)


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """Outcome of a check without running the program.

    If `checked` is false, no language server has seen the program and only syntax errors are reported.
    """

    language: Language
    checked: bool
    unchecked: str | None = None
    """Reason why no language server has checked it, as a clause."""
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def passed(self) -> bool:
        """True if the program would run: there are no errors."""
        return all(each.severity != "error" for each in self.diagnostics)

    def model_text(self, max_chars: int = 50_000) -> str:
        """Returns the text for a model: errors first, then notes."""
        errors = [_located(each) for each in self.diagnostics if each.severity == "error"]
        notes = [f"- {_located(each)}" for each in self.diagnostics if each.severity != "error"]
        if errors:
            parts = ["\n".join(["The program would not run.", *errors])]
        elif self.checked:
            parts = ["The program fits the declarations."]
        else:
            reason = f": {self.unchecked}" if self.unchecked else ""
            parts = [f"The program parses. Its types were not checked{reason}."]
        if notes:
            parts.append("\n".join(["Notes:", *notes]))
        return "\n\n".join(preview_text(part, max_chars) for part in parts)


def _located(remark: Diagnostic) -> str:
    return f"{'' if remark.line is None else f'line {remark.line}, column {remark.column}: '}{remark.message}"
