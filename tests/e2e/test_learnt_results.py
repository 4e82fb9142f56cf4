"""Models are told what results of undeclared tools looked like; no program is checked against it."""

from __future__ import annotations

import json

import pytest

from corral import Corral, ExecutionContext, Limits, tool
from corral.errors import ToolFailed
from corral.model import LearntResults
from corral.sandboxes.selection import Sandboxes
from corral.types import Language

pytestmark = pytest.mark.anyio

ANN, BOB = ExecutionContext(user_id="ann"), ExecutionContext(user_id="bob")


@tool(namespace="crm")
async def deal(id: int):
    """Gets a deal."""
    if id < 0:
        raise ToolFailed("there is none")
    return "x" * id if id > 100 else json.dumps({"id": id, "owner": {"mail": "ann@acme.com"}, "tags": ["new"]})


@tool(namespace="crm")
async def note(id: int):
    """Gets a note."""
    return f"prose of {id}"


CALLS: dict[Language, str] = {
    "typescript": "for (let id = 0; id < 2; id++) await tools.crm.deal({ id }); return (await tools.crm.deal({ id: 1 })).id;",
    "python": "for id in range(2):\n    await tools.crm.deal(id=id)\n(await tools.crm.deal(id=1))['id']",
}
FAILING: dict[Language, str] = {
    "typescript": "const n = await tools.crm.note({ id: 1 }) as any; return n.lines[0].text;",
    "python": "n = await tools.crm.note(id=1)\nn['lines'][0]",
}
REJECTED: dict[Language, str] = {
    "typescript": "return (await tools.crm.deal({ ident: 1 })).id;",
    "python": "(await tools.crm.deal(ident=1))['id']",
}
UNKNOWN_MEMBER: dict[Language, str] = {
    "typescript": "const d = await tools.crm.deal({ id: 1 }); return d.price ?? d.tags.length + 1;",
    "python": "d = await tools.crm.deal(id=1)\nd['price'] if 'price' in d else len(d['tags']) + 1",
}
LOOKED_UP: dict[Language, str] = {
    "typescript": "return [(await tools.search('deal')).items[0].signature, (await tools.describe('crm.deal')).declaration];",
    "python": "[(await tools.search('deal'))['items'][0]['signature'], (await tools.describe('crm.deal'))['declaration']]",
}
UNWANTED = (
    "for id in (-1, 5000):\n    try:\n        await tools.crm.deal(id=id)\n    except Exception:\n        pass\nNone"
)
TYPE: dict[Language, str] = {
    "typescript": "{ id?: number; owner?: { mail?: string }; tags?: string[] }",
    "python": '{"id"?: int, "owner"?: {"mail"?: str}, "tags"?: list[str]}',
}


@pytest.mark.parametrize("language", ["typescript", "python"])
async def test_models_are_told_of_results_and_programs_are_checked_as_before(
    language: Language, warm: Sandboxes
) -> None:
    learnt = LearntResults("shapes")
    async with Corral([deal, note], sandbox=warm, learnt=learnt, check="required") as corral:

        async def run(program: str, context: ExecutionContext = ANN) -> str:
            result = await corral.execute(program, language=language, context=context)
            return result.model_text()

        failed = await run(FAILING[language])
        assert "tools.crm.note, seen in results, not promised: text" in failed
        await run(CALLS[language])
        begun = corral.model.tools(language, context=ANN)[0]
        assert "JSON object, parsed already" in await run(REJECTED[language])
        assert "seen in results" not in begun.description

        assert await run(CALLS[language]) == "Result: 1"
        described = await run(LOOKED_UP[language])
        assert json.dumps(TYPE[language])[1:-1] in described
        assert described.count("seen in results, not promised") == 2
        assert "seen in results" not in begun.description
        assert (
            f"Seen in results, not promised: {TYPE[language]}"
            in corral.model.tools(language, context=ANN)[0].description
        )
        assert "seen in results" not in await run(LOOKED_UP[language], BOB)
        assert "Seen in results" not in corral.model.tools(language, context=BOB)[0].description

        assert await run(UNKNOWN_MEMBER[language]) == "Result: 2"
        declared = corral.model.declarations(language)
        assert "een in results" not in declared


async def test_nothing_is_learnt_from_errors_and_results_that_are_withheld(warm: Sandboxes) -> None:
    async with Corral([deal], sandbox=warm, limits=Limits(tool_output_bytes=2_000), check=False) as corral:
        result = await corral.execute(UNWANTED, language="python")
        assert [call.error is None for call in result.tool_calls] == [False, False]
        assert corral.learnt.tools() == ()
