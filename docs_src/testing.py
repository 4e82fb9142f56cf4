import asyncio

from corral import Approved, Corral, Denied, tool
from corral.testing import FakeSandbox, ScriptedModel

STOCK = {"chair": 4, "table": 0}


@tool
def count(article: str) -> int:
    """How many of an article are in stock."""
    return STOCK[article]


@tool(needs_approval=True)
async def order(article: str, number: int) -> str:
    """Orders an article from the supplier."""
    return f"{number} x {article} ordered"


PROGRAM = """
if (await tools.count({ article: "table" }) > 0) return "enough";
return await tools.order({ article: "table", number: 10 });
"""


async def test_a_real_program_with_a_scripted_model() -> None:
    model = ScriptedModel("return await tools.count({ thing: 'table' })", PROGRAM)
    async with Corral([count, order], approve=lambda _: Approved()) as corral:
        [wrong, right] = await model.converse(corral.model.tools()[0])
    assert "'article' is missing" in wrong
    assert right == 'Result: "10 x table ordered"'


async def test_what_a_denied_order_does() -> None:
    async with Corral([count, order], approve=lambda _: Denied("no budget")) as corral:
        result = await corral.execute(PROGRAM)
    assert result.error is not None
    assert (result.error.code, result.error.line) == ("approval_denied", 3)
    assert [(call.name, call.error is None) for call in result.tool_calls] == [("count", True), ("order", False)]


async def test_the_host_without_an_engine() -> None:
    sandbox = FakeSandbox(lambda guest: guest.call("count", {"article": "chair"}))
    async with Corral([count], sandbox=sandbox, check=False) as corral:
        assert (await corral.execute("return 1")).value == 4


if __name__ == "__main__":  # or by pytest, with anyio's plugin
    for test in (
        test_a_real_program_with_a_scripted_model,
        test_what_a_denied_order_does,
        test_the_host_without_an_engine,
    ):
        asyncio.run(test())
        print(test.__name__, "passed")
