"""Erasing types gives what the engine's own stripping gives, at the same lines and columns."""

from __future__ import annotations

import pytest

from corral.errors import ProgramRejected
from corral.programs import strip_types
from corral.programs.syntax.typescript import parse, walk
from tests.programs.conftest import Run, Strip

SNIPPETS = [
    "const a: number = 1",
    "let x!: number, y: string;",
    "function f(a: string, b?: number, ...r: any[]): asserts a is string {}",
    "function f(this: Foo, a: number) {}",
    "function f(this: Foo) {}",
    "const f = <T,>(x: T): T => x",
    "const f = async <T>(x: T): Promise<T> => x",
    "const f = async <\n  T\n>(x: T): Promise<T> => x",
    "const f = (a):\n  number => a",
    "const f = (a): {\n  b: number\n} => a",
    "const a = 1\ntype X = string\n[1, 2].forEach(x => x)",
    "let q: string\n[1].forEach()",
    "x!.y!(); a! = 1; a?.b!.c; a![0]; a!++",
    "interface A { b(): void; [k: string]: any } ",
    'declare const x: number; declare function f(): void; declare module "x" {} declare global {}',
    "abstract class A<T> extends B<T> implements C, D<T> { abstract x: number; abstract f(): void; private static readonly y?: string = 'a'; [k: string]: any; f(a: string): void; f(a) {} static { } declare z: string; w!: number; override g?(): void {}; get q(): number { return 1 } async *h<T>(this: A, x: T) {} }",
    'class A { a: number\n  ["b"]: string\n  static c\n  public d() {} }',
    "class A { x: number = 1; y?: string; z!: boolean }",
    "import type X from 'x'; import { type A, B } from 'y'; import type { Q } from 'q'; import C, { type D } from 'z'",
    "export type X = 1; export interface Y {} export declare const z: 1",
    "export { type A, b }; export type { C } from 'x'",
    "new Foo<string>; new Foo<A, B>(1); f<string>(1); a.b<T>(1); a?.b<T>(c)",
    "const g = f<string>;",
    "a < b, c > d",
    "function f(a: string): void;\nfunction f(a: any) {}",
    "for (const k in o as any) {} for (const k of [] as string[]) {}",
    "(a as any) = 1; (a as any).b = 1; ({ a: 1 } as const)",
    "try { } catch (e: unknown) { }",
    "const { a, b }: { a: string, b: number } = x; const [c]: string[] = y",
    "x = (a as B) ? (b as C) : (c as D)",
    "return_(x as any as T)",
    "type A<T> = T extends (infer U)[] ? U : never; let y",
    "class A { constructor(a: string); constructor(a: any) {} }",
    "const f = function <T>(a: T): a is string { return true }",
    'let f: (a: string) => void = (a) => {}, g: new () => X, h: typeof import("x"), i: `a${string}`, j: unique symbol',
    "const o = { m<T>(a: T): void {}, get x(): number { return 1 }, async *[k]<U>(b?: U) {} }",
    "enumerate; type; declare; namespace; abstract_; of; as; satisfies",
    "class A extends (B as any)<T> {}",
    "class A<T = {}> extends B<C<D>> {}",
    "export default function f<T>(a: T): T { return a }",
    "export default class A implements B {}",
    "export abstract class A { abstract m(): void }",
    "label: for (let i: number = 0; i < (10 as number); i++) { continue label }",
    "if (a < b && c > (d as number)) {}",
    "const x = a! + b! - -c!",
    'const fn = async (x: string = "a", { y }: { y: number }, [z]: number[] = []): Promise<void> => { await x }',
    "x = y as unknown as\n  Foo<\n    Bar\n  >\nz = 1",
    'const é: string = "😀" as string; const b: /* c */ number = 1 // d',
    "type A = 1; type B = 2; interface C {}; let z = 1",
    "class A { static #p: number = 1; #q?: string; static async m?(): Promise<void> {} }",
    "namespace N { export type X = 1 } let z = 1",
    "declare namespace N { const x: number } let z = 1",
    "var v = <T>(a: T) => <U>(b: U) => 1",
    "switch (a as B) { case b as C: type X = 1; break }",
    "function f<const T extends readonly unknown[]>(x: T) {}",
    "let a = b ? (c) : (d): number => e",
    "const x = { a: b as C, d: e! , f: <T>(g: T) => g }",
    "async function* f(): AsyncGenerator<number> { yield 1 as number }",
    "const s = `a${b as C}d${e!}`",
    "delete (a as any).b; void (a as any); typeof (a as any); !(a as any); -(a as any)",
    "class A { get: number\nfoo() {} }",
    "class A { get?: number; set!: string }",
    "const f = (a?: number, b?) => 1; function g({ a }?: X) {}",
    "const f = (cb: (x: number) => void, y: { (a: string): void }): (() => void) => () => {}",
    "type F = {\n  a: string\n}\n;[1].map(String)",
    "let a: string | undefined\nlet b: number\n;(a)",
    "foo<A>()\nbar<B, C>(d)",
    "const a = <const T,>(x: T) => x",
    "class C { private constructor() {} protected static async f() {} public get x() { return 1 } }",
    "let u: undefined | null = null; let v: void; let fn: () => asserts x",
    "f(a as B, c satisfies D, ...(e as F))",
    "const a = (b as C)!; const d = e!as F",
    "if (x) type",
    "const x = {} as { a: string; b: () => void }; const y = 2",
    "export const x: number = 1, y: string = ''; export let z!: string",
    "import a, { type b } from 'c'; export * from 'd'; export * as e from 'f'",
    "const a = b as any / 2",
    "(<T>(x: T) => x)(1)",
    "const a = new (Foo as any)(1); const b = new (x!.y)()",
    "f(a as z.core.B, (c as z.core.D).e, f as q.r.s.t)",
    "let a: z.core.B[] = 1, b = c as z.core.B[]",
    "class A {\n  x = 1\n  private [y] = 2\n  public z\n  protected *gen() {}\n}",
]

# What the parser does not know, or reads otherwise than TypeScript.
MISREAD = {
    "const foo = 1, y = 42 as any\n`a${y}`\ny": 42,
    "let y\ny = 42 as any\n(function () {})()\ny": 42,
    "const y = 42 as A.B.C | D\n;[1].length\ny": 42,
    "const y = (41 as A.B.C | null | D.E.F & G.H.I) + 1\ny": 42,
    "const y = [42] as number[]\n[0].toString()\ny[0]": 42,
    "interface A<in out T, out U extends string = 'a'> { t: T; u: U }\n42": 42,
    "function f<in>(x) { return x } f(42)": 42,
    "const foo = 1, y = 42 as any\n(foo)\ny": 42,
    "const y = 42 as any\n[1].length\ny": 42,
    "const y = 42 satisfies number\n`t`\ny": 42,
    "const a = 40, d = 2; f(a as A.B.C | D); function f(x) { return x + d }": 42,
    "const a = 42; f(a as any | null); function f(x) { return x }": 42,
    "f<string>`a`; function f(x) { return 42 }": 42,
}


def _structure(code: str) -> list[str]:
    """The kinds of all nodes and the text of all leaves, semicolons and comments aside."""
    skipped = (";", "comment", "empty_statement")
    nodes = [node for node in walk(parse(code.encode()).root_node) if node.type not in skipped]
    return [node.type if node.child_count else (node.text or b"").decode() for node in nodes]


def test_the_javascript_is_that_of_the_engine(strip_by_engine: Strip) -> None:
    references = dict(zip(SNIPPETS, strip_by_engine(SNIPPETS), strict=True))
    assert [snippet for snippet, reference in references.items() if reference is None] == []
    ours = {snippet: _structure(strip_types(snippet)) for snippet in SNIPPETS}
    assert ours == {snippet: _structure(reference or "") for snippet, reference in references.items()}


def test_every_token_stays_where_it_was() -> None:
    stripped = {snippet: strip_types(snippet) for snippet in SNIPPETS}
    moved = [
        (old, new)
        for old, new in stripped.items()
        if list(map(len, old.split("\n"))) != list(map(len, new.split("\n")))
        or any(now != before for now, before in zip(new, old, strict=True) if now not in " ;()")
    ]
    assert moved == []


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("const x = <any>{ a: 1 }", "const x = (    { a: 1 })"),
        ("const f = () => <T>{ a: 1 }", "const f = () => (  { a: 1 })"),
        ("a\n{ b: 1 }.b", "a\n({ b: 1 }.b)"),
        ("'😀' as string; x", "'😀'          ; x"),
        ("let a: '😀' = x", "let a       = x"),
        ("const f = async <\n  T\n>(x: T) => x", "const f = async (\n   \n  x   ) => x"),
        ("const f = (a):\n  number => a", "const f = (a  \n       ) => a"),
        ("class A { x: number\n get y() { return 1 } }", "class A { x;       \n get y() { return 1 } }"),
    ],
)
def test_what_blanking_alone_would_change_is_kept_apart(source: str, code: str) -> None:
    assert strip_types(source) == code


def test_what_is_no_typescript_is_refused() -> None:
    with pytest.raises(ProgramRejected, match="not valid"):
        strip_types("const = 1")


def test_what_the_parser_reads_otherwise_means_what_it_means_in_typescript(run: Run) -> None:
    assert [outcome.value for outcome in run(list(MISREAD))] == list(MISREAD.values())
