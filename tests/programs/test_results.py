"""What a program's value is, in every shape that models write."""

from __future__ import annotations

import pytest

from corral.programs import prepare_typescript
from tests.programs.conftest import Outcome, Run

VALUE_42 = [
    "return 42",
    "42",
    "42;",
    "let x = 1\nx + 41;",
    "let x; x = 42",
    "const x = 41;\nx + 1 // the end",
    "let i = 42\ni++",
    "await 42",
    "0, 42",
    '"use strict";\n42',
    "do { } while (false) 42",
    "const a = 1; ;; 42;;",
    "const f = () => 42; f()",
    "return 42;\nfunction later() {}",
    "42\ninterface A { a: string }\ntype B = string",
    "main(); async function main() { return 42 }",
    # functions are called
    "async () => 42",
    "async () => { return 42; };",
    "// do it\nasync () => 42",
    "(async () => 42)",
    "(async () => 42) satisfies () => Promise<number>",
    "async function main() { return 42 }",
    "async function () { return 42 }",
    "function () { return 42 }",
    "let v = 1;\n(function () { return 42 })",
    "main; async function main() { return 42 }",
    "let main: () => Promise<number>\nmain = async () => 42",
    "(tools) => tools.answer",
    "async ({ answer }) => answer",
    "async ({ limit = 42 } = {}) => limit",
    "const main = async ({ answer }) => answer;\nmain",
    "const main = async ({ answer }: { answer: number }) => answer;\nexport default main",
    # and so are programs of declarations
    "function helper() { return 41 }\nasync function main() { return helper() + 1 }",
    "async function main() { return helper() + 1 }\nfunction helper() { return 41 }",
    "const fn = async () => 42;",
    "type A = number\nasync function solution(): Promise<A> { return 42 }",
    'console.log("start");\nasync function main() { return 42 }',
    "export async function run() { return 42 }",
    "export const handler = async () => 42;",
    # calls
    "(async () => { return 42 })()",
    "(async () => { return 42 })();\n// done",
    "const main = async () => 42; main().then(x => x)",
    "void main(); async function main() { return 42 }",
    "await main(); async function main() { return 42 }",
    "async function main() { return 42 }\nif (import.meta.main) { await main() }",
    # completion values
    "if (1) { 42 } else { 0 }",
    "if (0) 1; else if (1) 42; else 3",
    "let v = 1\nif (v) {\n  async () => 42\n}",
    "if (true) { return 42 }\n0",
    'try { await Promise.reject(new Error("x")) } catch (e) { 42 }',
    'try { Promise.reject(new Error("x")) } catch (e) { 42 }',
    "a: { 42 }",
    "{ 42 }",
    # modules
    "export default async () => 42",
    "export default function () { return 42 }",
    "export default async function ({ answer }) { return answer }",
    "export default 42",
    "export default 42; console.log(1)",
    "export default async () => 42\nconst helper = 1;",
    "export default (1 + 41) as number",
    "export default function () { return 42 }\n(1)",
    "export = 42",
    "export { main as default };\nasync function main() { return 42 }",
    "export {}; 42",
    # exported and called: not called twice
    "let n = 41;\nexport default async function main() { return ++n }\nmain();",
    "let n = 41;\nconst main = async () => ++n;\nexport default main;\nawait main();",
    # CommonJS
    "module.exports = async () => 42",
    "module.exports = { main }; async function main() { return 42 }",
    "module.exports = { solution: () => 42 }",
    "exports.default = () => 42",
    "exports.main = () => 42;",
    "exports.solution = ({ answer }) => answer",
    "let n = 41; async function main() { return ++n }\nmain();\nmodule.exports = { main };",
    "async function main() { return 42 }\nmodule.exports = { main };\nif (require.main === module) { main() }",
    # names of our own
    "var $load = 41; $load + 1",
    "const tools = { a: 42 }; tools.a",
    "const $program = 42, $entry = 1, $main = 2; $program",
    "function f() { return 1 }\nfunction f() { return 42 }\nf()",
    "using r = { [Symbol.dispose]() {} };\n42",
    # what the engine compiles
    "enum Color { Red = 42 }\nColor.Red",
    "const enum E { A = 42 }\nreturn E.A",
    "class P { constructor(private readonly x: number) {} get() { return this.x } }\nnew P(42).get()",
    "namespace N { export const x = 42 }\nN.x",
    "tag<string>`x`; function tag(x) { return 42 }",
    "const x = 42 as any\n[1].length\nx",
    "interface A<in out T> { a: T }\n42",
]

OTHER_VALUES = [
    ("", None),
    ("   \n\t\n", None),
    ("// nothing", None),
    ("const a = 42, b = a - 41;", None),
    ("const a = { b: 42 }; const { b } = a", 42),
    ("let a = Promise.resolve(42)\nfunction f() { return a }", 42),
    ('"hello"', "hello"),
    ("`a${1}`", "a1"),
    ('{ "answer": 42 }', {"answer": 42}),
    ("{ answer: 42 }", {"answer": 42}),
    ("const a = 42;\n({ a })", {"a": 42}),
    ("const a = 41, b = 1;\n{ a, b }", {"a": 41, "b": 1}),
    ("export default { answer: 42 }", {"answer": 42}),
    ("return () => 1", "[function]"),
    ("export default class {}", "[function]"),
    ("return typeof module", "undefined"),
    ("return typeof exports", "undefined"),
    ("return typeof require", "undefined"),
    ("import.meta.main", True),
    ("import . meta\n. main", True),
]


@pytest.fixture(scope="module")
def outcomes(run: Run) -> dict[str, Outcome]:
    sources = [*VALUE_42, *(source for source, _ in OTHER_VALUES)]
    return dict(zip(sources, run(sources), strict=True))


def test_a_program_of_any_shape_has_its_value(outcomes: dict[str, Outcome]) -> None:
    assert {source: outcomes[source] for source in VALUE_42 if outcomes[source].value != 42} == {}


def test_a_value_is_what_the_source_says(outcomes: dict[str, Outcome]) -> None:
    found = {source: (outcomes[source].value, outcomes[source].error) for source, _ in OTHER_VALUES}
    assert found == {source: (value, None) for source, value in OTHER_VALUES}


@pytest.mark.parametrize(
    ("source", "advice"),
    [
        ("const a = 1\nconst { b, c: [d, e = 1], ...f } = x", "End with `return { b, d, e, f }`."),
        ("for (const x of [1]) { x }", "it ends with a loop"),
        ("console.log(1)", "console call"),
        ("switch (1) { case 1: 42 }", "a statement without a value"),
        ("// nothing", "no statement"),
    ],
)
def test_a_program_without_a_result_says_how_to_have_one(source: str, advice: str) -> None:
    (diagnostic,) = prepare_typescript(source).diagnostics
    assert (diagnostic.severity, diagnostic.code) == ("info", "no_result")
    assert advice in diagnostic.message


@pytest.mark.parametrize("source", ["return 1", "if (x) { return 1 }\nfor (;;) {}", "throw new Error('x')", "f()"])
def test_a_program_with_a_result_gets_no_advice(source: str) -> None:
    assert prepare_typescript(source).diagnostics == ()
