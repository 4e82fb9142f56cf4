from corral import Corral, tool
from corral.tools import ToolRegistry


@tool(namespace="github")
async def create_issue(repo: str, title: str, body: str = "") -> int:
    """Creates an issue in a repository.

    Returns:
        Its number.
    """
    return 7


def draw(kind: str) -> str:
    return kind


charts = [tool(name=f"draw_{number}", description="Draws a chart.")(draw) for number in range(250)]
tools = ToolRegistry(create_issue)
tools.register(*charts, namespace="charts")

PROGRAM = """
const found = await tools.search("open a bug report");
const { declaration } = await tools.describe(found.items[0].name);
console.log(found.items[0].signature);
console.log(declaration);
return await tools[found.items[0].name]({ repo: "corral", title: "It works" });
"""

with Corral(tools) as corral:
    result = corral.sync.execute(PROGRAM)
    print(*(entry.text for entry in result.logs), result.value, sep="\n")

    catalog = corral.model.catalog(budget_tokens=1_500)
    print(catalog.level, catalog.text.splitlines()[0])
    tools.register(draw)
    tools.remove("charts.draw_0")
    print(catalog.news(), end="")
