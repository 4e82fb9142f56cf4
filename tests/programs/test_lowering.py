"""Enums, namespaces, parameter properties and accessors mean what they mean in the engine's own compiler."""

from __future__ import annotations

from typing import Any

import pytest

from corral.errors import ProgramRejected
from corral.programs import prepare_typescript
from tests.programs.conftest import Run, RunByEngine

ENUMS = [
    "enum A { B, C }\nexport default A",
    "enum A { B = 1, C, D = 10, E }\nexport default [A.C, A[11], A]",
    "enum A { B = 'b', C = \"c\", D = `d` }\nexport default A",
    "enum A { B = 'b', C = 3, D }\nexport default A",
    "enum A { B = 1 << 0, C = 1 << 1, D = B | C, E = ~D, F = -1, G = A.D + 1 }\nexport default A",
    "enum A { B = 1.5, C, D = -2, E }\nexport default A",
    "enum A { 'x-y' = 4, 'z', default, delete = 9 }\nexport default [A, A['x-y'], A.default]",
    "enum A { ['q'] = 4, [`r`] = 5 }\nexport default A",
    "enum A { B = 'x'.length, C = Math.max(3, 4) }\nexport default A",
    "enum A { B = 'a' + 'b', C = `${B}c`, D = B }\nexport default A",
    "const base = 5;\nenum A { B = base, C = base * 2 }\nexport default A",
    "enum A { B }\nenum A { C = 5, D = B + 7 }\nexport default A",
    "enum A { B = 1, C = B, D = (B + C) * 2, E = [B, C].length }\nexport default A",
    "export enum A { B, C = 'c' }\nexport default A",
    "enum A {}\nexport default A",
    "enum A { B, C, }\nexport default Object.entries(A)",
    "enum A {\n  // one\n  B = 1, // two\n  /* three */ C\n  ,\n  D, // four\n}\nexport default A",
    "function f() { enum A { B = 2 } return A.B }\nexport default f()",
    "const found = [];\nfor (const x of [1, 2]) { enum A { B = x } found.push(A) }\nexport default found.length",
    "{ enum A { B = 1 } { enum A { C = 2 } globalThis.kept = [A] } }\nexport default globalThis.kept",
    "export default typeof A\nenum A { B }",
    "const x = 1\nenum A { B }\nexport default A.B",
    "const enum A { B = 1, C = B * 4 }\nexport default [A.B, A.C]",
    "declare enum A { B }\nexport default typeof A",
    "declare const enum A { B }\nexport default 1",
    "enum A { B = 1, C = 1 }\nexport default A[1]",
    "enum A { B }\nconst o: Record<A, string> = { [A.B]: 'x' };\nexport default o",
    "enum A { B = <any>'x', C = 4 as number }\nexport default A",
    "enum é { ü = 1 }\nexport default é",
    "enum A { A = 1, B = A + 1 }\nexport default A",
    "enum A { B = (() => { const C = 3; return C })() }\nexport default A.B",
    "if (true) {\n  enum A { B }\n  globalThis.kept = A.B;\n}\nexport default globalThis.kept",
    "switch (1) { case 1: enum A { B = 4 }; globalThis.kept = A.B }\nexport default globalThis.kept",
    "enum A { B = 0x10, C = 0b11, D = 1_000, E = 1e3 }\nexport default A",
    "enum A { B = '\\n', C = 'it\\'s' }\nexport default A",
]

NAMESPACES = [
    "namespace N { export const x = 1; export function f() { return x + 1 } }\nexport default [N.x, N.f(), Object.keys(N)]",
    "namespace N { const hidden = 2; export const x = hidden * 2 }\nexport default N",
    "namespace N { export let n = 1; export function up() { n++; return n } }\nN.up(); N.n += 10;\nexport default [N.n, N.up()]",
    "namespace N { export var a = 1, b = a + 1; export const { c, d: [e] } = { c: 3, d: [4] } }\nexport default { ...N }",
    "namespace A.B.C { export const x = 1 }\nexport default A",
    "namespace A.B { export const x = 1 }\nnamespace A.B { export const y = 2 }\nexport default A",
    "namespace A { export namespace B { export const x = 1 } export const y = B.x + 1 }\nexport default A",
    "namespace A { namespace B { export const x = 1 } export const y = B.x + 1 }\nexport default A",
    "namespace A { export enum E { X = 3 } export const y = E.X }\nexport default A",
    "namespace A { enum E { X = 3 } export const y = E.X }\nexport default A",
    "namespace A { export class K { v = 1 } export abstract class L {} export const k = new K() }\nexport default [A.k, Object.keys(A)]",
    "namespace A { export class A { v = 1 } }\nexport default new A.A()",
    "function f() { return f.x }\nnamespace f { export const x = 3 }\nexport default f()",
    "class K { m() { return K.x } }\nnamespace K { export const x = 3 }\nexport default new K().m()",
    "enum E { A = 1 }\nnamespace E { export function of() { return E.A } }\nexport default E.of()",
    "namespace N { export interface I { x: number } export type T = string }\nexport default typeof N",
    "namespace N { export interface I { x: number } export const x: I = { x: 1 } }\nexport default N",
    "declare namespace N { const x: number }\nexport default typeof N",
    "namespace N { export declare const x: number; export const y = 1 }\nexport default N",
    "module N { export const x = 1 }\nexport default N",
    "namespace A { export const x = 1 }\nimport a = A.x;\nexport default a",
    "namespace A { export namespace B { export const x = 1 } }\nimport b = A.B;\nexport default b.x",
    "namespace A { export type T = string }\nimport T = A.T;\nconst x: T = 'x';\nexport default x",
    "namespace A { export const x = 1 }\nnamespace B { import y = A.x; export const z = y + 1 }\nexport default B",
    "namespace A { export const x = 1 }\nnamespace B { export import y = A.x }\nexport default B",
    "namespace A { export async function f() { return 1 } export function* g() { yield 1 } }\nexport default [await A.f(), [...A.g()]]",
    "export namespace N { export const x = 1 }\nexport default N",
    "namespace N {\n  globalThis.kept = 7;\n}\nexport default globalThis.kept",
    "namespace N { export function f(a: string): string; export function f(a: any) { return a } }\nexport default N.f('x')",
    "namespace N { export const f = (n: number) => `€${n}` }\nexport default N.f(2)",
    "const x = 1\nnamespace N { export const y = x }\nexport default N.y",
    "namespace N { export const a = 1, b = () => a }\nexport default N.b()",
    "namespace N { export const x = 1; { const x = 2; globalThis.kept = x } }\nexport default [N.x, globalThis.kept]",
    "namespace N { for (const i of [1]) { globalThis.kept = i } export const x = 1 }\nexport default globalThis.kept",
]

CLASSES = [
    "class P { constructor(public x: number, private readonly y = 2, protected z?: string) {} }\nexport default new P(1)",
    "class P { z = this.x * 2; constructor(public x: number) {} }\nexport default new P(3)",
    "class P { a = 1; b = this.a + this.x; constructor(readonly x = 2) { this.a += 10 } c = 3 }\nexport default new P()",
    "class P { f = () => this.x; constructor(private x: number) {} }\nexport default new P(4).f()",
    "class P { #p = this.x + 1; constructor(private x: number) {} get p() { return this.#p } }\nexport default new P(4).p",
    "class P { 'a-b' = this.x; 7 = this.x; constructor(private x: number) {} }\nexport default new P(4)",
    "class B { constructor(readonly n: number) {} }\nclass P extends B { constructor(private x: number) { super(x + 1) } s() { return [this.x, this.n] } }\nexport default new P(1).s()",
    "class P extends Array { constructor(public x: number) { const y = x; super(); globalThis.kept = [y, this.x] } }\nnew P(5);\nexport default globalThis.kept",
    "class P { constructor(\n    private x: number,\n    public y: string,\n  ) {\n    globalThis.kept = [this.x, this.y];\n  }\n}\nnew P(1, 'a')\nexport default globalThis.kept",
    "class NotFound extends Error { constructor(public what: string) { super(`${what} is gone`); this.name = 'NotFound' } }\nconst e = new NotFound('x');\nexport default [e.message, e.what, e.name, e instanceof Error]",
    "abstract class S { constructor(protected n: number) {} abstract area(): number; }\nclass Q extends S { area() { return this.n ** 2 } }\nexport default new Q(3).area()",
    "class P { constructor(private x) { } static of() { return new P(1) } }\nexport default P.of()",
    "class P { constructor(a: string); constructor(public a: any) {} }\nexport default new P(1)",
    "export class P { constructor(public x: number) {} }\nexport default new P(2)",
    "const P = class { constructor(public x: number) {} };\nexport default new P(2)",
    "class P { static n = 0; y = P.n++; constructor(public x: number) {} }\nexport default new P(2)",
    "class P { constructor(override readonly x = 1) {} }\nexport default new P()",
    "class A { accessor = 1; static accessor() { return 2 } }\nexport default [new A().accessor, A.accessor()]",
    "class A { accessor\nx = 1 }\nexport default Object.keys(new A())",
]

# What the engine's own compiler does not do, or does in another way than TypeScript.
BEYOND: dict[str, Any] = {
    "class A { accessor x = 1; accessor y: number; static accessor z = 3 }\nconst a = new A(); a.x++;"
    "\n[a.x, a.y, A.z, Object.keys(a), 'x' in A.prototype]": [2, None, 3, [], True],
    "class A { accessor #p = 1; p() { return ++this.#p } }\nnew A().p()": 2,
    "class A { accessor 'a b' = 1; private accessor c = 2; accessor d = this.c }\nconst a = new A(); [a['a b'], a.d]": [
        1,
        2,
    ],
    "class A { accessor x = 1 }\nclass B extends A { accessor x = 2; both() { return [this.x, super.x] } }"
    "\nnew B().both()": [2, 1],
    "class A { static accessor n = 0; constructor() { A.n++ } }\nnew A(); new A(); A.n": 2,
    "namespace N { export let c = 1; export enum E { X } }"
    "\nnamespace N { export const z = c + 1; export const e = E.X }\n[N.z, N.e]": [2, 0],
    "enum E { A = 1, B }\nnamespace E { export const all = () => [A, B] }\nE.all()": [1, 2],
    "enum E { A = Math.max(1, 2), B }\nE.B": 3,
    "const enum E { A, B }\nObject.keys(E)": ["0", "1", "A", "B"],
}

REFUSED = {
    "class A { m(@d x) {} }": ("Decorators are not supported", 1, 13),
    "const d = () => {};\nclass A {\n  @d x = 1\n}": ("Decorators are not supported", 3, 3),
    "export default @d class A {}": ("Decorators are not supported", 1, 16),
    "class A { accessor [x] = 1 }": ("An `accessor` with a computed name", 1, 11),
}

# A program and where in it an error is thrown.
PLACES = [
    ("enum A {\n  B = 1,\n  C = ((): number => { throw new Error('x') })(),\n}", 3, 30),
    ("enum A { B }\nenum C { D }\n  throw new Error(`${A.B}${C.D}`)", 3, 9),
    ("namespace A.B {\n  export const x = 1;\n  throw new Error('x');\n}", 3, 9),
    ("class P { constructor(public x: number,\n    readonly y = 2) { throw new Error('x') } }\nnew P(1)", 2, 29),
    ("class P { z = (() => { throw new Error(`${this.x}`) })(); constructor(public x: number) {} }\nnew P(1)", 1, 30),
    ("class A { accessor x = (() => { throw new Error('x') })() }\nnew A()", 1, 39),
]

PROGRAMS = [*ENUMS, *NAMESPACES, *CLASSES]


def test_a_program_fares_as_in_the_engines_own_compiler(run: Run, run_by_engine: RunByEngine) -> None:
    ours, engines = run(PROGRAMS), run_by_engine(PROGRAMS)
    found = {source: (each.rejected, each.value, each.error) for source, each in zip(PROGRAMS, ours, strict=True)}
    assert found == {
        source: (None, each.get("value"), each.get("error")) for source, each in zip(PROGRAMS, engines, strict=True)
    }


def test_beyond_the_engines_compiler_a_program_does_what_the_language_says(run: Run) -> None:
    found = dict(zip(BEYOND, run(list(BEYOND)), strict=True))
    assert {source: outcome.value for source, outcome in found.items()} == BEYOND


@pytest.mark.parametrize("source", REFUSED)
def test_what_cannot_be_lowered_is_refused_with_its_place(source: str) -> None:
    with pytest.raises(ProgramRejected) as caught:
        prepare_typescript(source)
    text, line, column = REFUSED[source]
    assert text in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_an_error_has_the_place_that_the_model_wrote(run: Run) -> None:
    found = run([source for source, _, _ in PLACES])
    places = [(each.position.line, each.position.column) if each.position else None for each in found]
    assert places == [(line, column) for _, line, column in PLACES]
