"""Finding the program in what a model wrote."""

from __future__ import annotations

import pytest

from corral.errors import ProgramRejected
from corral.programs import prepare_typescript
from tests.programs.conftest import Outcome, Run


def fenced(code: str, info: str = "ts", run: str = "```") -> str:
    return f"{run}{info}\n{code}\n{run}\n"


LABELS = [
    *("ts", "typescript", "js", "javascript", "mjs", "cjs", "jsx", "tsx", "node", "deno", "none", ""),
    *("TypeScript", " ts", 'ts title="main.ts"', "{.ts}", "ts:main.ts", "language-js"),
]

SOURCES = {
    # drafts
    "thought": "<think>\nMaybe:\n```ts\nreturn 1\n```\n</think>\n```ts\nreturn 42\n```",
    "thought before a bare program": "<thinking>\nreturn 1\n</thinking>\nreturn 42",
    "thought without its beginning": "I return 1:\n```ts\nreturn 1\n```\n</think>\nreturn 42",
    "two thoughts": "<think>return 1</think>\n<reasoning>\nreturn 2\n</reasoning>\nreturn 42",
    "special tokens": "<|python_tag|>return 42<|eom_id|>",
    "tag in a string": "const s = `\n<think>\n42\n</think>`; return Number(s.replace(/<.?think>/g, ''))",
    # fences
    **{f"label {label!r}": fenced("return 42", label) for label in LABELS},
    "tildes": fenced("return 42", "js", "~~~"),
    "bare expression": fenced("40 + 2", "js"),
    "prose around": f"Here:\n{fenced('async () => 42', 'javascript')}Hope it helps!",
    "emoji around": f"Here 🎉:\n{fenced('return 42')}🎉",
    "in a numbered list": "1. Do it:\n\n   ```ts\n   return 42\n   ```\n\n2. Done",
    "behind a bullet": "- ```ts\n  return 42\n  ```",
    "behind an asterisk": "* ```ts\n  return 42\n  ```",
    "quoted": "> ```ts\n> const a = 42\n> a\n> ```",
    "unclosed": "Here\n```js\nreturn 42",
    "closed on the last line of code": "```js\nreturn 42```\n",
    "longer fence": fenced("/*\n```\n*/\n42", "ts", "````"),
    "fence in a comment in a fence": fenced("/*\n```js\nfoo()\n```\n*/\n42"),
    "fence in a template in a fence": fenced("const s = `\n\\`\\`\\`js\nx\n\\`\\`\\`\n`;\ns ? 42 : 0", "js"),
    "inside a markdown fence": fenced(f"hello\n{fenced('42')}", "markdown"),
    "inside a longer markdown fence": fenced(f"hello\n{fenced('42')}", "md", "````"),
    "in a tag": f"<code>\n{fenced('42')}</code>",
    # several fences
    "two fences": f"{fenced('const a = 41')}then\n{fenced('a + 1')}",
    "two fences and no semicolon": f"{fenced('const a = 42')}then\n{fenced('(a)')}",
    "a fence that was never closed before the next": "```ts\nconst a = 41\n```ts\na + 1\n```",
    "ten fences that were never closed": "```ts\nconst a = 42\n" + "```ts\na\n" * 9,
    "other languages": fenced('{"a": 1}', "json")
    + fenced("42")
    + "Output:\n"
    + fenced("43", "")
    + fenced("ls", "bash"),
    "unlabelled output": "Look:\n" + fenced("return 42", "") + "Output:\n" + fenced("Result: 42 items!", ""),
    "program outside fences": "Input:\n" + fenced('{"a": 1}', "json") + "const a = 42;\na",
    "redeclared constant": fenced("const a = 1") + fenced("const a = 42\na"),
    "redeclared as another kind": fenced("function f() { return 1 }") + fenced("const f = () => 42\nf()"),
    "redeclared class": fenced("class A { x = 1 }") + fenced("class A { x = 42 }\nnew A().x"),
    "redeclared pattern": fenced("const { a, c = 1 } = { a: 1 }") + fenced("let a = 41\na + c"),
    "redeclared import": fenced("import { b } from 'm'") + fenced("import { b } from 'm'\nb.length + 36"),
    "redeclared main": fenced("async function main() { return 1 }\nmain()")
    + fenced("async function main() { return 42 }\nmain()"),
    "two default exports": fenced("export default async () => 1") + fenced("export default async () => 42"),
    # no Markdown at all
    "fence in a block comment": "/*\n```ts\nreturn 1\n```\n*/\n42",
    "fence in a doc comment": "/**\n * x\n * ```ts\n * return 1\n * ```\n */\n42",
    "fence in a template": "const s = `\\`\\`\\`js\nx\n\\`\\`\\``;\ns ? 42 : 0",
    # prose
    "paragraphs around": "Here is the program:\n\nasync () => 42\n\nHope it helps!",
    "lines around": "Sure! Here's the code:\nconst x = 41;\nreturn x + 1;\nThis returns the answer.",
    "Markdown around": "# Plan\n\n1. First do it\n2. Then `return` it\n\nconst a = 42;\na\n\n**Note:** it works.",
    "a word before": "Input:\nconst a = 42;\na",
    "language on the first line": "typescript\nreturn 42",
    "language and colon on the first line": "JavaScript:\nreturn 42",
    "shebang": "#!/usr/bin/env -S deno run\nreturn 42",
    "shebang in a fence": fenced("#!/usr/bin/env deno\nreturn 42"),
    "code tag": "<code>\nreturn 42\n</code>",
    "typescript tag": "<typescript>return 42</typescript>",
    "nested tags": "<pre><code>return 42</code></pre>",
    "tag in prose": 'Here you go:\n<execute_code lang="ts">\nconst a = 42\na\n</execute_code>\nDone!',
    "inline code": "`return 42`",
    "inline code with three backticks": "```return 42```",
    "inline code with a label": "```js return 42```",
    # white space
    "CRLF": "```ts\r\nconst a = 41\r\nreturn a + 1\r\n```\r\n",
    "lone CR": "```ts\rconst a = 41\rreturn a + 1\r```\r",
    "byte order mark": "\ufeffreturn 42",
    "byte order mark before a fence": "\ufeff" + fenced("return 42"),
    "no-break space": "const a\u00a0=\u00a042;\u00a0a",
    "zero-width space": "const a =\u200b 42;\u200b\na",
    "line separator": "const a = 42\u2028a",
    "surrogate pair": "'\ud83d\ude00'.length + 40",
}


@pytest.fixture(scope="module")
def outcomes(run: Run) -> dict[str, Outcome]:
    return dict(zip(SOURCES, run(list(SOURCES.values())), strict=True))


def test_the_program_is_found(outcomes: dict[str, Outcome]) -> None:
    assert {name: outcome for name, outcome in outcomes.items() if outcome.value != 42} == {}


def test_lines_stay_where_they_are(outcomes: dict[str, Outcome]) -> None:
    found = {name: each.program and len(each.program.code.splitlines()) for name, each in outcomes.items()}
    assert found == {
        name: len(source.splitlines() + [""] * source.endswith(("\n", "\r"))) + 1 for name, source in SOURCES.items()
    }


@pytest.mark.parametrize("info", ["json", "python", "text"])
def test_a_source_with_only_other_languages_is_rejected(info: str) -> None:
    with pytest.raises(ProgramRejected, match=f"labelled {info}.*labelled typescript"):
        prepare_typescript(fenced("{}", info))


def test_no_part_of_a_broken_program_is_taken_for_the_whole() -> None:
    source = "const x = ;\n\nconst y = 1;\n\nreturn y"
    program = prepare_typescript(source)
    assert source.splitlines()[0] in program.code


def test_a_template_literal_is_not_inline_code(run: Run) -> None:
    assert [outcome.value for outcome in run(["`hello world`", "`hello`"])] == ["hello world", "hello"]


def test_half_a_surrogate_pair_is_replaced_and_said_so() -> None:
    program = prepare_typescript("return '\ud83d'")
    assert "\ufffd" in program.code
    assert [diagnostic.code for diagnostic in program.diagnostics] == ["lone_surrogate"]
    assert program.source == "return '\ud83d'"
