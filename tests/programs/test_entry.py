"""A program's own function is called with the tools, unless it plainly means something else by its parameter."""

from __future__ import annotations

import pytest

from corral.programs import prepare_typescript
from tests.programs.conftest import Run
from tests.programs.running import run_python

BODY = "return await tools.answer()"

# A function, and the arguments that it is called with; None: the tools.
CALLED = {
    "async function main(t) { return await t.answer() }": None,
    "async function main(tools) { return tools }": None,
    "async function main(tools = {}) { return tools }": None,
    "async function main(t: any) { return await t.answer() }": None,
    "async function main(t: ToolSet) { return await t['answer']() }": None,
    "async function main(api: Api) { return await api.github.list({}) }": None,
    "async function main(t) { const { answer } = t; return await answer() }": None,
    "async function main(t) { return helper(t) }": None,
    "async function main({ answer }) { return await answer() }": None,
    "async function main({ answer }: any) { return [1].map(answer) }": None,
    "async function main({ tools }) { return 1 }": None,
    "async function main({ github: { list } }) { return await list() }": None,
    "async function main({ github }) { return await github.list() }": None,
    "async function main() { return 1 }": None,
    "export default async (t) => await t.answer()": None,
    "async function main(days = 2) { return days }": "",
    'async function main(city = "Oslo") { return city }': "",
    "async function main(days: number = 2) { return days }": "",
    "async function main({ city = 'Oslo' } = {}) { return city }": "",
    "async function main({ city }: { city?: string } = {}) { return city }": "",
    "async function main(args = []) { return args.map(String) }": "",
    "async function main(city: string) { return city.toUpperCase() }": "",
    "async function main(args: string[]) { return args }": "",
    "async function main(when?: Date | null) { return when }": "",
    "async function main(input: Input) { return input.city }": "",
    "async function main(input) { return `${input.city}` }": "",
    "async function main(_unused) { return 1 }": "",
    "async function main({ city = 'Oslo' }) { return city }": "{}",
    "async function main({ city }: Input) { return await tools.read({ city }) }": "{}",
    "export default async (input: Input) => input.city": "",
    "const run = async (days = 2) => days": "",
    "const main = async (days = 2) => days;\nexport default main": "",
    "module.exports = async (days = 2) => days": "",
    "(days = 2) => days": "",
}


@pytest.mark.parametrize("source", CALLED)
def test_an_entry_function_is_called_with_what_it_means(source: str) -> None:
    arguments = CALLED[source]
    code = prepare_typescript(source).code
    ending = code[code.rindex("return await") :] if "return await (" not in code else code
    assert ("$entry(" in code.partition("{")[2]) is (arguments is None), ending
    if arguments is not None:
        assert f"({arguments})" in ending


def test_defaults_stay_defaults(run: Run) -> None:
    sources = {
        "async function main(days = 2) { return days }": 2,
        "async function main({ city = 'Oslo' }) { return city }": "Oslo",
        "export default async (input?: { city: string }) => input?.city ?? 'none'": "none",
        "((days = 3) => days)": 3,
    }
    assert [outcome.value for outcome in run(list(sources))] == list(sources.values())


PYTHON = {
    "def main(days=2):\n    return days": 2,
    "def main(city: str = 'Oslo'):\n    return city": "Oslo",
    "async def main(tools):\n    return await tools.answer()": 42,
    "async def main(t):\n    return await t.answer()": 42,
    "async def main(t: 'Tools'):\n    return await t.answer()": 42,
    "async def helper(x):\n    return await x.answer()\nasync def main(t):\n    return await helper(t)": 42,
    "lambda days=2: days": 2,
}


@pytest.mark.parametrize("source", PYTHON)
def test_in_python_too(source: str) -> None:
    assert run_python(source).value == PYTHON[source]


@pytest.mark.parametrize("parameter", ["city: str", "args: list[str]", "input: Input", "input: 'dict[str, int]'"])
def test_a_function_in_python_that_expects_something_else_says_what_it_lacks(parameter: str) -> None:
    ran = run_python(f"class Input: ...\ndef main({parameter}):\n    return 1")
    assert isinstance(ran.error, TypeError)
    assert "missing 1 required positional argument" in str(ran.error)
