"""Which tools a program may call, as its source tells: named where that is sure, computed where it is not."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from corral import Corral, define_tool
from corral.errors import ProgramRejected
from corral.programs import prepare_typescript
from corral.sandboxes import DenoSandbox
from corral.types import References

CASES = Path(__file__).parents[1] / "cases"

SURE = {
    # members
    "await tools.add({ a: 1 })": "add",
    "await codemode.github.list_issues({})": "github.list_issues",
    "tools.b(); tools.a(); tools.b()": "b a",
    "tools['a'](); tools[`b`](); tools['github.list']()": "a b github.list",
    "tools?.a(); tools?.['b'](); tools.github?.list()": "a b github.list",
    "tools!.a(); (tools as any).b(); (<any>tools).c(); ((tools)).d(); (tools satisfies object).e()": "a b c d e",
    "const name = 'x'; tools.github[name]()": "github",
    "const { github } = tools": "github",
    "const gh = tools.github; gh.list()": "github",
    "[1].map(tools.add)": "add",
    "new tools.Thing(); class A extends tools.Base {}": "Thing Base",
    "`${await tools.add()}`": "add",
    "tools.add<number>({} as any)": "add",
    "tools.add.bind(null)": "add.bind",
    "import { type tools } from 'x'; tools.add()": "add",
    # members taken apart
    "const { add, sub: minus, github: { list, get: take } } = tools": "add sub github.list github.get",
    "const { add = null, 'sub': minus, ['mul']: times, github: { list } = {} } = tools as any": "add sub mul github.list",
    "let add; ({ add } = tools)": "add",
    "const { list } = tools.github": "github.list",
    "const f = ({ add } = tools) => add()": "add",
    # the program's own function
    "async ({ add, sub }) => add(await sub())": "add sub",
    "async (api) => api.add()": "add",
    "api => api.add()": "add",
    "(async function (api: any) { return api.add() })": "add",
    "export default async function main({ add }) { return add() }": "add",
    "export default async (api) => api.github.list()": "github.list",
    "const main = async (api) => api.add();\nexport { main as default }": "add",
    "async function main(api) { return api.add() }": "add",
    "async function main(api) { return api.add() }\nmain": "add",
    "module.exports = async (api) => api.add()": "add",
    "exports.run = async function ({ add }) { return add() }": "add",
    "let main; main = async (api) => api.add()": "add",
    "if (Math.random()) (async (api) => api.one()); else api => api.two()": "one two",
    "({ tools, codemode: { sub } }) => tools.add()": "sub add",
    "async (tools) => tools.add()": "add",
    "async function main(this: void, { add }) { return add() }": "add",
    # other names for the tools
    "const t = tools; t.add()": "add",
    "const a = tools, b = a as any; b.add()": "add",
    "const t = tools; [{ x: 1 }].map((t) => t.x); t.add()": "add",
    "const f = () => { const tools = codemode; return tools.add() }; f(); tools.sub()": "add sub",
    # what is not the tools
    "const tools = ['a']; return tools.map((tool) => tool.length)": "",
    "const f = (tools) => tools.map(String); return f([])": "",
    "const f = tools => tools.map(String); return f([])": "",
    "function f({ tools }) { return tools.length } tools.add(f({}))": "add",
    "try { tools.add() } catch (tools) { return tools.message }": "add",
    "for (const tools of [[1]]) tools.pop(); tools.add()": "add",
    "for (let tools = []; tools.length; ) {} tools.add()": "add",
    "{ let tools = []; tools.push(1) } tools.add()": "add",
    "{ class tools { static x = 1 } tools.x } tools.add()": "add",
    "function f() { if (1) { var tools = [] } return tools.pop() } tools.add()": "add",
    "switch (1) { case 1: const tools = []; default: tools.pop() }": "",
    "const [{ x: [tools] }] = [{ x: [[]] }]; tools.pop()": "",
    "const f = function tools() { tools.name }": "",
    "import * as tools from 'tools'; tools.add()": "add",
    "import { tools } from 'tools'; tools.add()": "add",
    "enum tools { A } return tools.A": "",
    "const foo = { tools: { a: 1 }, self: 1 }; return foo.tools.a + foo.self": "",
    "async function main(api) { return api.add() }\nconst other = (api) => api.sub;": "add",
    "'tools.a'; `tools.b` // tools.c\n/* tools.d */": "",
    "type A = typeof tools.a; type B = ReturnType<typeof tools.b>; let x: typeof tools.c": "",
    "declare const tools: { add(): number }; tools.add()": "add",
    "typeof tools === 'object' && typeof globalThis; tools.add()": "add",
    "globalThis.name = 1; globalThis['other']; Function.name; const self = this; self.tools": "",
    "myTools.x; tools2.y; $tools.z; subtools.w": "",
    "return 'caf\\u00e9'": "",
    "enum Level { Low } tools.add(Level.Low)": "add",
    "": "",
}
UNSURE = {
    "tools[name]()": "",
    "tools['a' + 'dd']()": "",
    "tools[`a${1}`]()": "",
    "Object.keys(tools)": "",
    "for (const name in tools) {}": "",
    "const all = { ...tools }": "",
    "const all = { tools }": "",
    "return tools": "",
    "const { add, ...others } = tools": "add",
    "const { [name]: f } = tools": "",
    "({ add, ...others }) => 1": "add",
    "(...all) => 1": "",
    "let t = tools; t.add()": "",
    "let t; t = tools; t.add()": "",
    "let x; const t = { add: x } = tools": "",
    "function f(t = tools) { t.add() } f()": "",
    "function f(t = tools) { t.add() }": "add",
    "function f(t) { var t = t || []; t.pop() }": "",
    "import t = tools.github; t.list()": "",
    "(api) => { api = []; api.pop() }": "",
    "export default wrap(async (api) => api.add())": "",
    "globalThis.tools.add()": "",
    "globalThis['too' + 'ls'].add()": "",
    "(globalThis as any).codemode.add()": "",
    "Reflect.get(globalThis, 'tools')": "",
    "self; tools.add()": "add",
    "eval('tools.add()')": "",
    "new Function('return tools')()": "",
    "async function main() { return arguments[0].add() }": "",
    "t\\u006fols.add()": "",
    "tools.\\u0061dd()": "\\u0061dd",
    f"tools.{'x' * 201}()": "",
    "tools.add(); let x = = 1": "add",
}


def references(source: str) -> References:
    found = prepare_typescript(source).references
    assert found is not None
    return found


def paths(found: References) -> list[str]:
    return [reference.path for reference in found.named]


def found_in(sources: Iterable[str]) -> dict[str, tuple[list[str], bool]]:
    """The tools that programs name, and whether they may call others."""
    return {source: (paths(found), found.computed) for source in sources for found in [references(source)]}


def test_the_tools_of_a_program_that_spells_them_out_are_named_and_no_others() -> None:
    assert found_in(SURE) == {source: (names.split(), False) for source, names in SURE.items()}


def test_a_program_that_may_call_any_tool_is_said_to() -> None:
    assert found_in(UNSURE) == {source: (names.split(), True) for source, names in UNSURE.items()}


def test_a_reference_stands_where_the_model_wrote_its_name() -> None:
    answer = "Let me see.\n\n```ts\nconst s: string = '😀é'; await tools.add(s);\nconst { b: c } = tools; tools.add(c)\n```\n"
    assert references(answer).named == (("add", 4, 38), ("b", 5, 9))
    assert references(answer.replace("😀é", "")).named == (("add", 4, 35), ("b", 5, 9))


MORE = pytest.mark.matrix("the same search ends on other sources in the gate; more of them")


def test_more_references_than_are_kept_make_it_any_tool() -> None:
    found = references("\n".join(f"tools.t{number}()" for number in range(1100)))
    assert (len(found.named), found.computed) == (1000, True)


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("tools.add();" * 20_000, marks=MORE),
        "tools" * 50_000,
        "/*" + "tools " * 40_000 + "*/",
        "".join(f"const t{number + 1} = {f't{number}' if number else 'tools'};" for number in range(9_000)),
        pytest.param("{" * 600 + "var tools = 1;" * 15_000 + "}" * 600, marks=MORE),
        "const { " + "a: { " * 300 + "tools" + " }" * 300 + " } = tools;",
        pytest.param("const t = tools;" + "[].map((t) => t.x);" * 10_000, marks=MORE),
        pytest.param("'\\u0061';" * 25_000, marks=MORE),
    ],
    ids=["calls", "one name", "comment", "aliases", "hoisting", "pattern", "shadows", "escapes"],
)
def test_a_hostile_source_ends_the_search_and_not_the_program(source: str) -> None:
    assert isinstance(references(source).computed, bool)


def corpus() -> list[str]:
    attacks = json.loads((CASES / "attacks.json").read_text(encoding="utf-8"))["attacks"]
    peers = json.loads((CASES / "js-peers.json").read_text(encoding="utf-8"))
    inputs = [case["input"] if isinstance(case["input"], str) else case["input"].get("code") for case in peers]
    return [each["code"] for each in attacks if each["language"] == "ts"] + [each for each in inputs if each]


def test_every_program_of_the_corpora_is_looked_through() -> None:
    looked_through = 0
    for source in corpus():
        try:
            program = prepare_typescript(source)
        except ProgramRejected:
            continue
        assert isinstance(program.references, References)
        looked_through += 1
    assert looked_through > 100


HOLDERS = {
    "tools": "{}",
    "codemode": "{}",
    "(tools as any)": "{}",
    "globalThis.tools": "{}",
    "held": "const held = tools; {}",
    "loose": "let loose = tools; {}",
    "inner.tools": "const inner = {{ tools }}; {}",
    "given": "return await (async (given) => {{ {} }})(tools)",
    "api": "async function main(api) {{ {} }}",
    "parameter": "export default async (parameter) => {{ {} }}",
    "(arguments[0])": "export default async function () {{ {} }}",
    "made": "const wrap = (f) => f; export default wrap(async (made) => {{ {} }})",
}
USES = [
    "return await {}.add({{}})",
    "return await {}['github.list']({{}})",
    "const {{ add: plus, github: {{ list }} }} = {}; await plus(); return await list()",
    "const {{ github }} = {}; return await github.list()",
    "const {{ sub, ...others }} = {}; return await others.add()",
    "return await Promise.all(Object.values({}).map((each) => typeof each === 'function' ? each() : each.list()))",
    "const name = 'ad' + 'd'; return await {}[name]()",
    "const github = {}?.github!; return await github['list']()",
    "const tools = {{ add: () => 1 }}; const t = codemode; await tools.add(); return await t.sub({})",
    "enum Level {{ Low }} return await {}.sub({{ level: Level.Low }})",
]


@pytest.mark.anyio
async def test_what_a_program_calls_was_named_or_anything_was_to_be_expected() -> None:
    async def answer(input: Any) -> Any:
        return input

    tools = [define_tool(name=name, execute=answer) for name in ("add", "sub", "github.list")]
    calls = 0
    async with Corral(tools, sandbox=DenoSandbox(pool_size=1), check=False) as corral:
        for holder, use in list(product(HOLDERS, USES))[::3]:
            source = HOLDERS[holder].format(use.format(holder))
            found = references(source)
            result = await corral.execute(source)
            for call in result.tool_calls:
                calls += 1
                namespace = call.name.partition(".")[0]
                assert found.computed or {call.name, namespace} & set(paths(found)), source
    assert calls > 30
