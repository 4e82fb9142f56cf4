"""Names of tools and namespaces in programs.

A guest name is a member of `tools` in JavaScript and in Python. It is made from the original name by the following
rules, in this order. Case never changes.

1. Letters lose their accents (`naïve` → `naive`); other letters and digits outside ASCII become `u` and their code
   point in hexadecimal (`日本` → `u65e5u672c`).
2. White space, `-`, `.`, `/` and `:` become `_`; whatever else is not a letter, a digit, `_` or `$` is dropped.
3. A leading digit gets the prefix `_` (`2fa` → `_2fa`).
4. Words that Python reserves (`import`), members of every object (`toString`), names between double underscores
   (`__proto__`), and names that languages call by themselves (`then`, `toJSON`) get the suffix `_`. Words that only
   JavaScript reserves (`export`, `delete`) may be members, and stay.

Programs can write words that either language reserves with or without the suffix, unless another tool has that name.

If several names of a namespace become the same identifier, the one that already was that identifier keeps it, and
each other one gets `_` and the start of the SHA-256 of its original name (four hexadecimal digits, more if four
collide). So the names depend on the set of tools, never on the order of registration.
"""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from itertools import count

from corral.errors import ToolDefinitionError

RESERVED_ROOT_NAMES = frozenset({"search", "describe"})
"""Names that tools without a namespace cannot have, because programs search the catalog with them. Namespaces get a
suffix."""

# ECMA-262: keywords, future reserved words in strict mode, names that strict code cannot bind; and TypeScript's own.
_JAVASCRIPT_WORDS = """
    arguments async await break case catch class const continue debugger default delete do else enum eval export
    extends false finally for function if implements import in Infinity instanceof interface let NaN new null package
    private protected public return static super switch this throw true try typeof undefined var void while with yield
"""
_OBJECT_MEMBERS = """
    constructor hasOwnProperty isPrototypeOf propertyIsEnumerable prototype toLocaleString toString valueOf
"""
_CALLED_BY_THE_LANGUAGE = "then toJSON"
_SUFFIXED = frozenset([*f"{_OBJECT_MEMBERS} {_CALLED_BY_THE_LANGUAGE}".split(), *keyword.kwlist])
_KEPT = frozenset(_JAVASCRIPT_WORDS.split()) - _SUFFIXED

_SUFFIXED_NAMESPACES = RESERVED_ROOT_NAMES | {"codemode", "corral", "tools"}
"""Members of `tools` itself. Namespaces with these names get a suffix."""

_SEPARATORS = re.compile(r"[\s\-./:]")
_DUNDER = re.compile(r"__[^_](.*[^_])?__")


def _ascii(character: str) -> str:
    if character.isascii():
        return character if character.isalnum() or character in "_$" else ""
    return f"u{ord(character):04x}" if character.isalnum() else ""


@lru_cache(maxsize=16_384)
def identifier(name: str) -> str:
    """Converts `name` to an identifier, by the rules of this module. Identifiers are unchanged.

    Raises:
        ToolDefinitionError: no character of the name is allowed in an identifier.
    """
    plain = "".join(letter for letter in unicodedata.normalize("NFKD", name) if not unicodedata.combining(letter))
    cleaned = "".join(map(_ascii, _SEPARATORS.sub("_", plain)))
    if not cleaned:
        raise ToolDefinitionError(f"the name {name[:100]!r} has no letter, digit, _ or $ to make an identifier of")
    if cleaned[0].isdigit():
        cleaned = f"_{cleaned}"
    if cleaned in _SUFFIXED or _DUNDER.fullmatch(cleaned):
        cleaned += "_"
    return cleaned


def other_spelling(name: str) -> str | None:
    """Returns the other spelling of a reserved word: `export_` for `export`, `import` for `import_`."""
    if name in _KEPT:
        return f"{name}_"
    return name[:-1] if name.endswith("_") and name[:-1] in keyword.kwlist else None


def namespace_identifier(namespace: str) -> str:
    """Converts `namespace` to an identifier. `search`, `describe` and the members of `tools` get the suffix `_`.

    Raises:
        ToolDefinitionError: the namespace is reserved, or none of its characters is allowed in an identifier.
    """
    cleaned = identifier(namespace)
    if cleaned.startswith("__"):
        raise ToolDefinitionError(
            f"the namespace {namespace[:100]!r} begins with __, which is reserved; choose another one"
        )
    return f"{cleaned}_" if cleaned in _SUFFIXED_NAMESPACES else cleaned


def distinct_identifiers(names: Iterable[str]) -> dict[str, str]:
    """Returns a distinct identifier for each of the `names`, which differ, of one namespace."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        groups[identifier(name)].append(name)
    identifiers: dict[str, str] = {}
    colliding: dict[str, list[str]] = {}
    for cleaned, originals in groups.items():
        if len(originals) == 1 or cleaned in originals:
            identifiers[originals[0] if len(originals) == 1 else cleaned] = cleaned
        if len(originals) > 1:
            colliding[cleaned] = [original for original in originals if original != cleaned]
    taken = set(identifiers.values())
    for cleaned, originals in colliding.items():
        identifiers.update(_with_digests(cleaned, originals, taken))
    return identifiers


def _with_digests(cleaned: str, originals: list[str], taken: set[str]) -> dict[str, str]:
    digests = {original: sha256(original.encode(errors="surrogatepass")).hexdigest() for original in originals}
    for digits in count(4, 4):
        names = {original: f"{cleaned}_{digest[:digits]}" for original, digest in digests.items()}
        if len(set(names.values())) == len(names) and taken.isdisjoint(names.values()):
            return names
    raise AssertionError("unreachable: different names have different digests")
