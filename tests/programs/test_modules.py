"""Imports go to the loader, and nothing reaches the engine past it."""

from __future__ import annotations

import re

import pytest

from corral.programs import prepare_typescript
from tests.programs.conftest import Outcome, Run

EVIL = "globalThis.ran.push('evil')"
URL = "data:text/javascript,globalThis.ran.push(%27evil%27)"
WAIT = "await new Promise((resolve) => setTimeout(resolve, 20))"

VALUES = [
    ("import a from 'm'; a", "default of m"),
    ("import { b } from 'm'\nb", "b of m"),
    ("import {\n  b as x,\n  default as y,\n} from 'm'\n[x, y]", ["b of m", "default of m"]),
    ("import a, { b } from 'm'; [a, b]", ["default of m", "b of m"]),
    ("import * as m from 'm'; m.b", "b of m"),
    ("import a, * as m from 'm'; [a, m.b]", ["default of m", "b of m"]),
    ("import 'm'; 42", 42),
    ("import z, { y as x } from 'zzz' with { type: 'json' }\n42 // z", 42),
    ("import {\n  z,\n  type Z,\n} from 'zzz'\ntype A = z.B | typeof z; const a: typeof z = 42; ({ z: a }).z", 42),
    ("import * as z from 'zzz'; import n from 'n'; n", "default of n"),
    ("import m = require('m'); m.b", "b of m"),
    ("import { b } from 'm' with { type: 'json' }\n[b]", ["b of m"]),
    ("import type { X } from 'zzz'; import { type Y } from 'zzz'; 42", 42),
    ("import type A, { B } from 'zzz'; 42", 42),
    ("import { type X, b } from 'm'; b", "b of m"),
    ("export { b } from 'm'; 42", 42),
    ("export * from 'm'; 42", 42),
    ("export type { X } from 'zzz'; export type * from 'zzz'; 42", 42),
    ("export as namespace X; 42", 42),
    ("const { b } = await import('m'); b", "b of m"),
    ("(await import( /* x */ 'm', { with: { type: 'json' } })).b", "b of m"),
    ("const name = 'm'; (await import(name)).b", "b of m"),
    ("`${(await import('m')).b}`", "b of m"),
    ("import('m').then((m) => m.b)", "b of m"),
    # words that are no imports
    ("'import(\"x\")'.length", 11),
    ("const s = `import('x')`; s.length", 11),
    ("/import(x)/.test('importx')", True),
    ("({ import: 1 }).import", 1),
    ("({ import() { return 42 } }).import()", 42),
    ("class A { import() { return 42 } }\nnew A().import()", 42),
    ("// import('x')\n42", 42),
    ("const t: typeof import('x') = 42 as any; t", 42),
    ("type A = import('x').B; 42", 42),
]

LOADED = [
    f"import('{URL}')",
    f"await import ( '{URL}' )",
    f"await import/*x*/('{URL}')",
    f"await import\n('{URL}')",
    f"import x from '{URL}'; x",
    f"import '{URL}'",
    f"export * from '{URL}'",
    f"export {{ x }} from '{URL}'",
    f"function f() {{ return import('{URL}') }}\nf()",
    f"const u = '{URL}'; await import(u)",
    f"namespace N {{ export const x = import('{URL}') }}\nawait N.x",
    f"class A {{ constructor(private x = import('{URL}')) {{}} }}\nawait new A().x",
    # what one parser may take for a regular expression and another for a division
    f"{{a:1}} / '/; import('{URL}') //'",
    f"function f(){{}} /'/; import('{URL}') //'",
    f"if (1) {{}} /'/; await import('{URL}') //'",
    f"interface Y {{}} /'/; await import('{URL}') //'",
    f"let x = 1, y = 1\nx\n--> y; `\nawait import('{URL}') //`",
]

# what the engine may take for a comment and the parser for operators, or the other way round
HTML_COMMENTS = [
    f"let y = 1; 1 <!--y + `\nimport<!-- y\n('{URL}')\n{WAIT} //`\n;var z = 1;",
    f"let y = 1; 1 <!--y + `\nimport\n--> y\n('{URL}')\n{WAIT} //`",
    f"let y = 1; 1 <!--y + `\nimport/*\n*/--> y\n('{URL}')\n{WAIT} //`",
    f"let y = 1; 1 <!---y + `\nimport('{URL}') //`",
    f"let y = 1; 1 <<!--y + `\nimport('{URL}') //`",
    f"let y = 1; `${{1<!--y + `\nimport('{URL}') //`}}`",
    f"let y = 1; [y<!--y, '/*']; import('{URL}') //*/",
    f"let y = 1; y <!--y / 1 + '/'; `\nimport('{URL}') //`",
    f"let y = 1; (y\n/**/--> y) + `\nimport('{URL}') //`",
    f"let y = 1; y /*\n*/--> y + `\nimport('{URL}') //`",
    f"let y = 1; y/**/--> y + `\nimport('{URL}') //`",
    f"let y = 1\n;--> y `\nimport('{URL}') //`",
    f"<!-- `\nimport('{URL}') //`",
    f"<!-- `\u2028import('{URL}') //`",
    f"--> `\nimport('{URL}') //`",
    f"/*\n*/ --> `\nimport('{URL}') //`",
    f"enum A {{}}; let y = 1; 1 <!--y + `\nimport<!-- y\n('{URL}')\n{WAIT} //`",
    f"enum A {{}}; let y = 1\ny\n--> y; `\nimport('{URL}') //`",
    f"@@; let y = 1; 1 <!--y + `\nimport<!-- y\n('{URL}')\n{WAIT} //`",
    f"@@\n--> `\nimport('{URL}') //`",
]

OPERATORS = [
    ("let a = 3, b = 1; a<!--b", False),
    ("let a = 0, b = 1; a<!--b", True),
    ("let a = 1, b = 1; a<<!--b", 2),
    ("let x = 3; x-->0", True),
    ("let x = 3, n = 0; while (x --> 0) n++\nn", 3),
    ("let x = 3; `${x-->0}${0<!--x}`", "truefalse"),
    ("let x = 8; x-->>1", 4),
    ("enum A { B }\nlet a = 0, b = 1; [a<!--b, b-->0]", [True, False]),
    ("'<!-- x -->'", "<!-- x -->"),
    ("'' + `<!-- x\n-->`", "<!-- x\n-->"),
    ("`\\<!--` + '\\<!--'", "<!--<!--"),
    ("/^<!--.*-->$/.test('<!-- x -->')", True),
    ("/* <!-- */ 42 // -->", 42),
    ("<!-- x\n42\n--> y", 42),
]

SMUGGLED = [
    f"import.defer('{URL}')",
    f"import . source('{URL}')",
    f"import defer * as n from '{URL}'",
    f"import source x from '{URL}'",
    f"\\u0069mport('{URL}')",
    f"enum A {{}}; await im\\u0070ort('{URL}')",
    f"x: {{ import y from '{URL}' }}",
    f"function f() {{ import y from '{URL}' }}",
    f"enum A {{}} namespace N {{ import x from '{URL}' }}",
    f"@(import('{URL}')) class A {{}}",
    f"String.raw`import('{URL}')`",
    f"let x = 1; x\n<!-- y `\nawait import('{URL}') //`",
    f"({{}}) / '/; import('{URL}') //'",
    f"let a; a as any\n/'/; await import('{URL}') //'",
    f"() => {{}}\n/'/; await import('{URL}') //'",
    f"@@ import('{URL}')",
    f"@@ '\nimport '{URL}'\n'",
    "return 1; })(); (async () => { return 42",
    f"return 1; }}}}); {EVIL}; (async function () {{ x: {{",
    f"}}; {EVIL}; {{",
    f"enum A {{}} }} }}); {EVIL}; (async () => {{ $program: {{",
    f"enum A {{}} }} }}); {EVIL}; (async () => {{ $progr\\u0061m: {{",
    f"//\u2028}} }}); {EVIL}",
    f"`${{ /}}}}); {EVIL}; (async () => {{ ",
    "} ; export const evil = 1; {",
    f"@@ /[/ }} }}); {EVIL}; (async () => {{ {{ /]/",
]


@pytest.fixture(scope="module")
def outcomes(run: Run) -> dict[str, Outcome]:
    sources = [*(source for source, _ in [*VALUES, *OPERATORS]), *LOADED, *SMUGGLED, *HTML_COMMENTS]
    return dict(zip(sources, run(sources), strict=True))


@pytest.mark.parametrize("table", [VALUES, OPERATORS], ids=["imports and exports", "operators like comments"])
def test_a_program_has_its_value(table: list[tuple[str, object]], outcomes: dict[str, Outcome]) -> None:
    assert {source: outcomes[source] for source, value in table if outcomes[source].value != value} == {}


def test_no_comment_hides_an_import(outcomes: dict[str, Outcome]) -> None:
    assert {source: outcomes[source] for source in HTML_COMMENTS if outcomes[source].ran} == {}


def test_every_import_asks_the_loader(outcomes: dict[str, Outcome]) -> None:
    found = {source: (outcomes[source].error, outcomes[source].ran) for source in LOADED}
    assert found == dict.fromkeys(LOADED, (f"TypeError: module {URL} is not available", ()))


def test_a_source_cannot_leave_its_wrapper_or_import(outcomes: dict[str, Outcome]) -> None:
    found = {source: outcomes[source] for source in SMUGGLED}
    passed = {source: each for source, each in found.items() if each.rejected is None and each.error is None}
    assert passed == {}
    assert {source: each.ran for source, each in found.items() if each.ran} == {}


def test_no_import_is_left_for_the_engine(outcomes: dict[str, Outcome]) -> None:
    programs = [outcomes[source].program for source in (*LOADED, *SMUGGLED, *HTML_COMMENTS)]
    codes = [each.code for each in programs if each is not None]
    assert len(codes) > len(LOADED)
    assert [code for code in codes if re.search(r"(?<![\w$.\\])import(?![\w$])\s*[('\"{*.]", code)] == []


def test_the_specifiers_are_listed_in_order() -> None:
    source = "const a = await import('c');\nimport x from 'a';\nexport * from 'b'; import type Y from 'z'; import(name)"
    assert prepare_typescript(source).imports == ("c", "a", "b")
