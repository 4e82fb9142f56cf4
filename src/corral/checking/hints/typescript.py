"""Hints about names from other languages and environments, and about members that strings lack, in TypeScript."""

from __future__ import annotations

import re

SENDS_REQUESTS = "Send requests with `fetch`; programs cannot load libraries, files or pages."
NO_LIBRARIES = "There are no libraries, files, pages or network: a program has the language, `console` and `tools`."
_ABSENT = (
    "$ _ fs path os axios lodash moment dayjs jQuery http https url util document window navigator location "
    "localStorage sessionStorage Deno Bun XMLHttpRequest module exports __dirname pd np cheerio d3 z"
)
NAMES = {
    **dict.fromkeys(_ABSENT.split(), NO_LIBRARIES),
    "require": "Programs cannot load modules: use the global `tools`.",
    "process": "There is no process: end with `return`, or throw an Error. No environment was passed.",
    **dict.fromkeys(("process.stdout.write", "alert"), "Write `console.log(...)`."),
    "process.stderr.write": "Write `console.error(...)`.",
    "print": "Write `console.log(...)`.",
    **dict.fromkeys(("None", "nil", "NULL"), "Write `null`."),
    "True": "Write `true`.",
    "False": "Write `false`.",
    "self": "Write `this`.",
    "len": "Write `value.length`, or `Object.keys(value).length`.",
    **dict.fromkeys(("str", "repr"), "Write `String(...)`."),
    **dict.fromkeys(("int", "long"), "Write `Math.trunc(Number(...))`."),
    "float": "Write `Number(...)`.",
    "bool": "Write `Boolean(...)`.",
    "dict": "Write `{}`, or `Object.fromEntries(...)`.",
    "list": "Write `[]`, or `[...values]`.",
    "tuple": "Write `[...values]`.",
    "set": "Write `new Set(...)`.",
    "json": "Write `JSON.stringify(...)` or `JSON.parse(...)`.",
    "range": "Write `for (let i = 0; i < n; i++)`, or `Array.from({ length: n }, (_, i) => i)`.",
    "enumerate": "Write `for (const [i, each] of values.entries())`.",
    "zip": "Write `first.map((each, i) => [each, second[i]])`.",
    "sorted": "Write `[...values].sort((a, b) => ...)`.",
    "reversed": "Write `[...values].reverse()`.",
    "sum": "Write `values.reduce((total, each) => total + each, 0)`.",
    "map": "Write `values.map((each) => ...)`.",
    "filter": "Write `values.filter((each) => ...)`.",
    "any": "Write `values.some((each) => ...)`.",
    "all": "Write `values.every((each) => ...)`.",
    **dict.fromkeys(
        ("min", "max", "abs", "round"), "It is a member of `Math`; for an array, write `Math.max(...values)`."
    ),
    "isinstance": "Write `typeof value`, `value instanceof Class` or `Array.isArray(value)`.",
    "type": "Write `typeof value`.",
    "datetime": "Write `new Date(...)`.",
    "time": "Write `Date.now()`, or `await new Promise((resolve) => setTimeout(resolve, ms))` to wait.",
    "asyncio": "Write `await Promise.all([...])`.",
    "re": "Write a regular expression as `/.../`.",
    "random": "Write `Math.random()`.",
    "math": "Write `Math`.",
    **dict.fromkeys(("Exception", "ValueError", "KeyError"), "Write `new Error(...)`."),
}
"""Hints by name, or by name and members where these matter."""

_OF_NUMBERS = frozenset({"toFixed", "toPrecision", "toExponential"})
_OF_DATES = re.compile(r"(?:get|set)(?:UTC)?(?:Time|Date|Day|FullYear|Month|Hours|Minutes|Seconds|Milliseconds)")
_PRINTING = frozenset(
    "getTimezoneOffset toISOString toUTCString toDateString toTimeString toLocaleDateString toLocaleTimeString".split()
)
_MARKUP = re.compile(
    r" Did you mean '(?:anchor|big|blink|bold|fixed|fontcolor|fontsize|italics|link|small|strike|sub|sup)'\?"
)
"""Suggestions of legacy string methods that create HTML, which no program needs."""


def conversion_hint(name: str, value: str) -> str | None:
    """Returns the conversion that gives a string's value this member. `value` is the string's source text."""
    if name in _OF_NUMBERS:
        return f"It is a string: write `Number({value}).{name}(...)`."
    if name in _PRINTING or _OF_DATES.fullmatch(name):
        return f"It is a string: write `new Date({value}).{name}(...)`."
    return None


def without_markup(message: str) -> str:
    """Removes a suggestion to make HTML from a compiler message about a string."""
    return _MARKUP.sub("", message)
