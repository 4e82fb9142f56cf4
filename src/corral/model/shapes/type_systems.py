"""Properties of a type system on which the reading of a schema depends."""

from __future__ import annotations

import builtins
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class TypeSystem:
    taken: frozenset[str]
    """Types of the language itself, which programs and declarations keep using."""
    has_integers: bool
    """True if there are separate types for integers and other numbers."""
    mixes_members: bool
    """True if a literal can mix properties of several members of a union, unless they forbid it."""
    writes_defaults: bool
    """True if the default of a parameter is a part of its declaration."""
    has_object_types: bool
    """True if the type of an object can be written inline. If not, each is declared under a name."""


TYPESCRIPT = TypeSystem(
    taken=frozenset(
        """
        AggregateError Array ArrayBuffer ArrayBufferLike ArrayBufferView ArrayLike AsyncDisposable AsyncGenerator
        AsyncIterable AsyncIterableIterator AsyncIterator Atomics Awaited BigInt BigInt64Array BigUint64Array Boolean
        CallableFunction Capitalize ConstructorParameters DataView Date Disposable Error EvalError Exclude Extract
        FinalizationRegistry Float16Array Float32Array Float64Array Function Generator IArguments Infinity InstanceType
        Int16Array Int32Array Int8Array Intl Iterable IterableIterator Iterator IteratorResult JSON Lowercase Map Math
        NaN NewableFunction NoInfer NonNullable Number Object Omit OmitThisParameter Parameters Partial Pick Promise
        PromiseLike PropertyDescriptor PropertyKey Proxy RangeError Readonly ReadonlyArray ReadonlyMap ReadonlySet
        Record ReferenceError Reflect RegExp RegExpExecArray RegExpMatchArray Required ReturnType Set SharedArrayBuffer
        String Symbol SyntaxError TemplateStringsArray ThisParameterType ThisType TypeError URIError Uint16Array
        Uint32Array Uint8Array Uint8ClampedArray Uncapitalize Uppercase WeakKey WeakMap WeakRef WeakSet
        """.split()
    ),
    has_integers=False,
    mixes_members=True,
    writes_defaults=False,
    has_object_types=True,
)
_LATER_BUILTINS = {"BaseExceptionGroup", "EncodingWarning", "ExceptionGroup", "PythonFinalizationError"}
"""Names that only some versions of Python have."""
PYTHON = TypeSystem(
    taken=frozenset(
        {name for name in dir(builtins) if name[0].isupper()}
        | {"Any", "Literal", "Never", "NotRequired", "TypeAlias", "TypedDict", "Union", *_LATER_BUILTINS}
    ),
    has_integers=True,
    mixes_members=False,
    writes_defaults=True,
    has_object_types=False,
)
