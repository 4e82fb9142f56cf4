"""What pydantic says about a value, in the words of `corral.tools.problems`."""

from __future__ import annotations

from itertools import islice

from pydantic import ValidationError

from corral.tools.problems import ABSENT, UNEXPECTED, Path, Problem, child, cut, either

__all__ = ["pydantic_problems"]

_ENDINGS = "type parsing parsing_size from_float from_datetime_parsing from_datetime_inexact from_date_parsing"


def _families(**nouns: str) -> dict[str, str]:
    """`noun="one two"` → the error types of pydantic of these families, all meaning "expected noun"."""
    return {
        f"{family}_{ending}": f"expected {noun.replace('_', ' ')}"
        for noun, families in nouns.items()
        for family in families.split()
        for ending in _ENDINGS.split()
    }


# https://docs.pydantic.dev/latest/errors/validation_errors/: error type → text, filled in from the error's context
_PYDANTIC_TEXTS = {
    **_families(
        integer="int",
        number="float",
        string="string string_sub",
        boolean="bool",
        bytes="bytes",
        array="list tuple set frozen_set iterable",
        object="dict mapping model model_attributes dataclass",
        date="date",
        date_and_time="datetime",
        time="time",
        duration="time_delta",
        decimal_number="decimal",
        UUID="uuid",
        URL="url",
    ),
    "missing": "field required",
    "extra_forbidden": UNEXPECTED,
    "none_required": "expected null",
    "finite_number": "expected a finite number",
    "literal_error": "expected {expected}",
    "enum": "expected {expected}",
    "greater_than": "expected more than {gt}",
    "greater_than_equal": "expected at least {ge}",
    "less_than": "expected less than {lt}",
    "less_than_equal": "expected at most {le}",
    "multiple_of": "expected a multiple of {multiple_of}",
    "string_too_short": "expected at least {min_length} characters",
    "string_too_long": "expected at most {max_length} characters",
    "string_pattern_mismatch": "expected a match of {pattern}",
    "too_short": "expected at least {min_length} items",
    "too_long": "expected at most {max_length} items",
    "union_tag_invalid": "expected {discriminator} to be one of {expected_tags}",
    "union_tag_not_found": "expected {discriminator} to say which variant it is",
    "recursion_loop": "contains itself, or is nested too deeply",
    "recursion_depth_exceeded": "is nested too deeply",
}


MAX_READ = 10_000
"""How many problems of one value are looked at: a program can send 240,000 wrong items, and twenty are shown."""

# here the path ends in a field, and a value is not what matters
_ABOUT_THE_FIELD = frozenset({"missing", "extra_forbidden"})


def pydantic_problems(error: ValidationError, value: object) -> list[Problem]:
    """The problems that pydantic found in `value`; the variants of a union make one problem, where one fits best."""
    found: dict[Path, Problem] = {}
    for line in islice(error.errors(include_url=False), MAX_READ):
        kind = line["type"]
        known = _PYDANTIC_TEXTS.get(kind)
        path = _data_path(line["loc"], value, keep_last=kind in _ABOUT_THE_FIELD)
        problem = Problem(
            path,
            text=known.format_map(line.get("ctx", {})) if known else "is not valid",
            detail=None if known else _detail(line["msg"]),
            value=ABSENT if kind in _ABOUT_THE_FIELD else line["input"],
        )
        found[path] = either(found[path], problem) if path in found else problem
    inner = {path[:length] for path in found for length in range(len(path))}
    return [problem for path, problem in found.items() if path not in inner]


def _detail(message: str) -> str:
    message = message.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return cut(message.replace("Input should", "should", 1), 500)


def _data_path(location: Path, value: object, *, keep_last: bool) -> Path:
    """`location` without the labels that pydantic adds for variants of unions and for validators."""
    path: list[str | int] = []
    for position, step in enumerate(location):
        inside = child(value, step)
        if inside is not ABSENT or isinstance(step, int) or (keep_last and position == len(location) - 1):
            path.append(step)
            value = inside
    return tuple(path)
