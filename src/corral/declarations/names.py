"""Names and constants, spelt so that they are safe in TypeScript whatever they contain."""

from __future__ import annotations

import json
import re

__all__ = ["json_text", "pascal_case", "property_key", "quoted", "template_text"]

_BARE_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")

_TAKEN = frozenset(
    """
    AggregateError Array ArrayBuffer ArrayBufferLike ArrayBufferView ArrayLike AsyncDisposable AsyncGenerator
    AsyncIterable AsyncIterableIterator AsyncIterator Atomics Awaited BigInt BigInt64Array BigUint64Array Boolean
    CallableFunction Capitalize ConstructorParameters DataView Date Disposable Error EvalError Exclude Extract
    FinalizationRegistry Float16Array Float32Array Float64Array Function Generator IArguments Infinity InstanceType
    Int16Array Int32Array Int8Array Intl Iterable IterableIterator Iterator IteratorResult JSON Lowercase Map Math NaN
    NewableFunction NoInfer NonNullable Number Object Omit OmitThisParameter Parameters Partial Pick Promise
    PromiseLike PropertyDescriptor PropertyKey Proxy RangeError Readonly ReadonlyArray ReadonlyMap ReadonlySet Record
    ReferenceError Reflect RegExp RegExpExecArray RegExpMatchArray Required ReturnType Set SharedArrayBuffer String
    Symbol SyntaxError TemplateStringsArray ThisParameterType ThisType TypeError URIError Uint16Array Uint32Array
    Uint8Array Uint8ClampedArray Uncapitalize Uppercase WeakKey WeakMap WeakRef WeakSet
    """.split()
)
"""Types of the language itself: programs, and the declarations too, go on to use them."""


def pascal_case(name: str) -> str:
    """A name for a type: `foo-bar` becomes `FooBar`, and `Date`, which is taken, `DateType`."""
    words = "".join(character if ("a" + character).isidentifier() and character != "_" else " " for character in name)
    joined = "".join(word[:1].upper() + word[1:] for word in words.split())
    if not joined.isidentifier():
        joined = f"Type{joined}"
    return f"{joined}Type" if joined in _TAKEN else joined


def property_key(name: str) -> str:
    """The name as a key of an object type, quoted if it has to be."""
    return name if _BARE_KEY.fullmatch(name) else quoted(name)


def quoted(text: str) -> str:
    """A string literal; what cannot be seen is escaped."""
    return "".join(_visible(character) for character in json.dumps(text, ensure_ascii=False))


def template_text(text: str) -> str:
    """The text as part of a template literal."""
    return quoted(text)[1:-1].replace('\\"', '"').replace("`", "\\`").replace("${", "\\${")


def json_text(value: object) -> str | None:
    """The value as compact JSON, or None if it is not a JSON value."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):
        return None
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    units = character.encode("utf-16-be", errors="surrogatepass")
    return "".join(f"\\u{units[index]:02x}{units[index + 1]:02x}" for index in range(0, len(units), 2))
