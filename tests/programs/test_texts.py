"""What was not quite meant to be TypeScript: what is mended, and what is refused with a text that says what to write."""

from __future__ import annotations

import pytest

from corral.errors import ProgramRejected
from corral.programs import prepare_typescript, typed_typescript
from corral.types import Program
from tests.programs.conftest import Run

TYPOGRAPHIC = {
    "const x = “forty”;\nreturn x": "forty",
    "return ‘it is’ + “ so”": "it is so",
    "const s = “It's”; return s": "It's",
    "Here’s the code:\n\nconst a = “b”;\nreturn a": "b",
    "```ts\nconst a = “b”; // it’s “fine”\nreturn `“${a}”`\n```": "“b”",
    "return 45 – 3": 42,
    "const é = “é”; return é + '“'": "é“",
}

PLAIN = [
    "return 'x'.replace(/[“”‘’]/g, '\"')",
    'return "“quoted”"',
    "return `it’s ${'“'}` // “no”",
    "/* “ */ return 'é – ü'",
    "const naïve = 1; return naïve",
    "Here’s the code:\n\nreturn 1",
]

REFUSED = {
    "return <div>{x}</div>": ("The JSX at line 1, column 8 cannot run here. Return data, not elements.", 1, 8),
    "const App = () => <App x={1} />;\nreturn App()": ("The JSX at line 1, column 19", 1, 19),
    "const a = 1;\nreturn <>x</>": ("The JSX at line 2, column 8", 2, 8),
    "import asyncio\n\nasync def main():\n    return await tools.read(city='Oslo')": ("This is Python", 1, 1),
    "x = 1\nfor c in cities:\n    x += c": ("This is Python", 2, 1),
    "found = await tools.read(city='x')\nprint(f'{found}')": ("This is Python", 2, 1),
    "if not x:\n    x = None": ("This is Python", 1, 1),
    "await Promise.all([1].map(x => await tools.read({ x })))": ("Make it `async (…) => …`", 1, 32),
    "[1].forEach(function (x) {\n  await tools.read({ x });\n})": ("a function that is not async", 2, 3),
    "const f = () => {\n  for (const x of [1]) { await tools.read({ x }) }\n}": ("Promise.all", 2, 26),
}

ACCEPTED = [
    "await Promise.all([1].map(async (x) => await tools.read({ x })))",
    "class A { async m() { await tools.read({}) } static async *n() { yield await 1 } }",
    "const o = { async m() { await 1 }, f: async function () { await 2 } }",
    "async () => { const f = () => 1; await f() }",
    "const await_ = 1; return await_",
    "return 1 < 2 && 3 > 1 ? '</div>' : '/>'",
    "const html = `<div>${1}</div>`;\nreturn html",
    "const print = (x) => x; return print('None')",
]

IMPORTS: dict[str, tuple[list[str], bool]] = {
    'import { tools } from "@/lib/anything";\nreturn await tools.read({})': (["read"], False),
    'import tools from "./x.js";\nreturn await tools.read({})': (["read"], False),
    'import * as tools from "x";\nreturn await tools.read({})': (["read"], False),
    'import { tools as t } from "x";\nreturn await t.read({})': ([], True),
    'import { read } from "tools";\nreturn await read({})': (["read"], False),
    'import { read as r } from "../src/tools.ts";\nreturn await r({})': (["read"], False),
    'import api from "@scope/codemode";\nreturn await api.read({})': ([], True),
    'import * as api from "corral";\nreturn await api.read({})': ([], True),
    'import { tools, ToolError } from "./sdk";\nreturn [ToolError, await tools.read({})]': (["read"], False),
    'import { ToolError as E, read, RateLimited } from "@corral/sdk";\nreturn [E, RateLimited, await read({})]': (
        ["read"],
        False,
    ),
    'import { type Read, read } from "tools";\nreturn await read({})': (["read"], False),
    "```ts\nimport { read } from 'tools';\nread\n```\n```ts\nimport { read } from 'tools';\nreturn read({})\n```": (
        ["read"],
        False,
    ),
}


def test_typographic_characters_are_read_as_those_of_a_keyboard_and_said_so(run: Run) -> None:
    outcomes = run(list(TYPOGRAPHIC))
    assert [outcome.value for outcome in outcomes] == list(TYPOGRAPHIC.values())
    for outcome in outcomes:
        assert outcome.program is not None
        assert [each.code for each in outcome.program.diagnostics] == ["typographic_characters"]


@pytest.mark.parametrize("source", PLAIN)
def test_typographic_characters_in_strings_patterns_and_prose_stay(source: str) -> None:
    program = prepare_typescript(source)
    assert program.diagnostics == ()
    assert (
        source.split("\n")[-1].removeprefix("return ")
        in program.code.replace("await (", "").replace(")", "") + program.code
    )


@pytest.mark.parametrize("source", REFUSED)
def test_what_cannot_be_a_program_is_refused_with_what_to_write_instead(source: str) -> None:
    text, line, column = REFUSED[source]
    with pytest.raises(ProgramRejected) as caught:
        prepare_typescript(source)
    assert text in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column)


@pytest.mark.parametrize("source", ACCEPTED)
def test_what_only_looks_like_it_is_accepted(source: str) -> None:
    assert isinstance(prepare_typescript(source), Program)


@pytest.mark.parametrize("source", IMPORTS)
def test_the_tools_may_be_imported(source: str) -> None:
    program = prepare_typescript(source)
    paths, computed = IMPORTS[source]
    assert program.references is not None
    assert program.imports == ()
    assert ([each.path for each in program.references.named], program.references.computed) == (paths, computed)
    assert program.typed is not None
    assert b"import" not in typed_typescript(program.typed).edits.apply()[0]


def test_imported_tools_are_those_of_the_global(run: Run) -> None:
    sources = [
        'import { tools } from "x"; tools.answer',
        'import { answer } from "tools"; answer',
        'import all, { answer as a } from "tools"; a === all.answer && a',
        'import { ToolError } from "corral"; ToolError',
        'import { ToolError as E } from "corral"; E',
    ]
    with_global = [
        f"Object.assign(globalThis, {{ tools: {{ answer: 42 }}, ToolError: 42 }});\n{each}" for each in sources
    ]
    assert [outcome.value for outcome in run(with_global)] == [42] * len(sources)
