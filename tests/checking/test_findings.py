"""What a model reads of its mistakes in TypeScript: short, once, and with what to write instead."""

from __future__ import annotations

import pytest

from corral import Corral
from corral.checking import Checker, Verdict
from corral.errors import ProgramRejected
from corral.tools import ToolRegistry
from tests.checking.corpora import checked
from tests.checking.tools import TOOLS

REGISTRY = ToolRegistry(*TOOLS)
TEXT = "const text = await tools.files.read({ path: '/a' });"


FOUND = {
    "await tools.get_ticket({ ticketId: 1 })": "Did you mean 'ticket_id' instead of 'ticketId'?",
    "await tools.get_ticket({ id: 1 })": "Did you mean 'ticket_id' instead of 'id'?",
    "await tools.crm.update_contact({ id: 'c1', status: 'lead' })": "missing in the input. Put 'status' into 'changes'.",
    "await tools.crm.update_contact({ id: 'c1', email: 'a', status: 'lead' })": "missing in the input. Put 'email' and 'status' into 'changes'.",
    "await tools.search_tickets({ query: '', status: 'opne' })": "Did you mean 'open'?",
    "(await tools.retail.all_customers()).find((u) => u)": "Use Object.values(await tools.retail.all_customers())",
    "const a = await tools.broker.account(); [...a.positions]": "Use Object.values(a.positions)",
    "const page = await tools.search_tickets({ query: '' }); page.map((t) => t)": "its array is 'results'",
    "(await tools.list_cities).length": "Write `await tools.list_cities(...)`.",
    "['o1'].map(tools.retail.order_details)": "Write `(each) => tools.retail.order_details({ order_id: ... })`.",
    "await tools.retail.order_details('o1')": "Write `tools.retail.order_details({ order_id: ... })`.",
    "await tools.retail.order_details('o1', 2)": "Write `tools.retail.order_details({ order_id: ... })`.",
    f"{TEXT} return text.items": "'items' does not exist on type 'string'. It is a string. If it is JSON, parse it first",
    f"{TEXT} const {{ ok }} = text; return ok": "If it is JSON, parse it first: JSON.parse(...).",
    f"{TEXT} return text.map((each) => each)": "If it is JSON, parse it first: JSON.parse(...).",
    f"{TEXT} for (const each of text) console.log(each.name)": "text is a string; the loop iterates over its characters.",
    "for (const each of await tools.list_cities()) console.log(each.name)": "'name' does not exist on type 'string'. It is",
    f"{TEXT} return text.toLowercase()": "Did you mean 'toLowerCase'?",
    f"{TEXT} return text.lenght": "Did you mean 'length'?",
    f"{TEXT} return text.toFixed(2)": "on type 'string'. It is a string: write `Number(text).toFixed(...)`.",
    "return (await tools.now()).toISOString()": "write `new Date(await tools.now()).toISOString(...)`.",
    "const at = await tools.now(); return at.getTime()": "write `new Date(at).getTime(...)`.",
    "process.stdout.write('a')": "'process'. Write `console.log(...)`.",
    "alert('a')": "'alert'. Write `console.log(...)`.",
    "print(1)": "'print'. Write `console.log(...)`.",
    "return len([1])": "Write `value.length`",
    "return json.dumps({})": "'json'. Write `JSON.stringify(...)`",
    "let x = None": "Write `null`.",
    "for (const i of range(3)) { console.log(i) }": "Write `for (let i = 0; i < n; i++)`",
    "return earlier.length": "'earlier'. Programs share no state",
    "total = 0; return total": "Declare it: `let total`.",
    "for (each of [1]) { console.log(each) }": "Declare it: `for (const each of ...)`.",
    "const total = 1; return totl": "Did you mean 'total'?",
    "for (let i = 0; i < 3; i++) { const o = await tools.retail.order_details({ order_id: 'o1' }); if (o.ok) return o; }": "The loop would repeat the call",
    "await tools.github.list_issues({ repo: 'a', per_page: 1000 })": "per_page: expected at most 100, got number 1000.",
    "await tools.frobnicate({})": 'await tools.search("words") finds them',
    "const out = []; [1].forEach(async (n) => { out.push(await tools.now()); }); return out.length": "use `for...of`",
    "[1].filter(async (n) => await tools.now())": "The promise that it returns counts as true.",
    "return await allTickets()": "Did you mean `tools.search_tickets`? Programs share no state",
    "await functions.retail.get_customer({ user_id: 'a' })": "Did you mean `tools.retail.get_customer`?",
    "await api.get_ticket({ ticket_id: 1 })": "Did you mean `tools.get_ticket`?",
    "await client.tickets.fetch({ id: 1 })": "Tools are members of `tools`.",
    "await axios.get('https://example.com')": "There are no libraries, files, pages or network",
    "process.exit(0)": "There is no process: end with `return`, or throw an Error.",
    "const o = await tools.retail.order_details({ order_id: 'o1' }); o.items()": "'items' is not a function.",
    "return tools.log.tail().length": "read it with `for await (const item of ...)`",
}
"""Mistakes, and what is to be said of each."""


def verdict_on(checker: Checker, program: str) -> Verdict:
    verdict = checked(checker, program, "typescript", REGISTRY, env=False, must=True)
    assert verdict.unchecked is None
    return verdict


def test_a_finding_says_what_to_write_instead(checker: Checker) -> None:
    found = {program: str(verdict_on(checker, program).rejection) for program in FOUND}
    assert {program: text for program, text in found.items() if FOUND[program] not in text} == {}


def test_an_await_in_a_function_that_is_not_async_is_found_before_the_check(checker: Checker) -> None:
    with pytest.raises(ProgramRejected, match="Make it `async"):
        verdict_on(checker, "[1].map((n) => { await tools.now(); })")


@pytest.mark.parametrize(
    "program",
    ["$('a')", "require('fs')", "process.argv", "await functions.now()", "document.title", "[1].toSpliced().x()"],
)
def test_no_advice_is_passed_on_that_nobody_can_follow(checker: Checker, program: str) -> None:
    told = " ".join(each.message for each in verdict_on(checker, program).diagnostics)
    assert not any(word in told for word in ("npm", "tsconfig", "'lib'", "target library", "'Function'")), told


def test_a_wrong_input_is_shown_the_declaration_without_its_result(checker: Checker) -> None:
    told = str(verdict_on(checker, "await tools.retail.order_details({ order_id: 5 })").rejection)
    assert told.endswith("declared: tools.retail.order_details(input: { order_id: string })")


def test_a_type_is_shown_once_and_in_one_line(checker: Checker) -> None:
    program = "const t = await tools.get_ticket({ ticket_id: 1 });\nreturn [t.titel, t.prio, t.stat];"
    told = str(verdict_on(checker, program).rejection)
    assert told.count("Property '") == 3
    assert told.count("assignee") == 1
    assert len(told.splitlines()) == 6


def test_a_misspelt_member_is_told_of_once(checker: Checker) -> None:
    program = "await tools.air.book({ user_id: 'u', cabin: 'economy', flights: [], passengers: [{ firstName: 'a' }] })"
    verdict = verdict_on(checker, program)
    [told] = [each.message for each in verdict.diagnostics if each.severity == "error"]
    assert "'first_name', 'last_name', 'dob' are missing in passengers[]" in told
    assert verdict.diagnostics[1:] == ()


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("[1].forEach(async () => { await tools.now(); }); return 1", "`forEach` does not wait for an async callback"),
        (
            "return (await tools.air.search_flights({ origin: 'a', destination: 'b', date: 'c' })).map((f) => f.price ?? 0)",
            "Did you mean 'prices'?",
        ),
    ],
)
@pytest.mark.anyio
async def test_what_goes_wrong_in_silence_is_told_of_a_program_that_succeeds(program: str, told: str) -> None:
    async with Corral(TOOLS, check="required") as corral:
        result = await corral.execute(program)
    assert result.status == "succeeded"
    assert told in result.model_text()


@pytest.mark.anyio
async def test_what_a_program_only_asks_for_is_no_matter_to_one_that_succeeds() -> None:
    async with Corral(TOOLS, check="required") as corral:
        result = await corral.execute("return (await tools.get_ticket({ ticket_id: 1 })).channel ?? 'web'")
    assert [each.severity for each in result.diagnostics] == ["warning"]
    assert result.model_text() == 'Result: "web"'
