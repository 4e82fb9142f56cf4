import asyncio

from corral import Corral, ExecutionContext
from corral.sessions import Mount, Scratch

TOTALS = """
import csv, json
rows = list(csv.DictReader(open("orders.csv")))
json.dump({"orders": len(rows), "sum": sum(float(row["amount"]) for row in rows)}, open("totals.json", "w"))
"""
REPORT = """
import { readFile, writeFile } from "fs/promises";
const totals = JSON.parse(await readFile("/workspace/totals.json", "utf8"));
await writeFile("report.md", `# ${totals.orders} orders\\n\\nSum: ${totals.sum}\\n`);
"""


async def main() -> None:
    ann = ExecutionContext(user_id="ann")
    async with (
        Corral() as corral,
        corral.session(context=ann, files=[Mount("/workspace", Scratch(bytes=10_000_000, files=100))]) as session,
    ):
        await session.files.write_text("orders.csv", "id,amount\n1,20\n2,22.5\n")
        print((await session.execute(TOTALS, language="python")).files)
        print((await session.execute(REPORT)).files)
        print(await session.files.read_text("report.md"))
        result = await session.execute("open('/etc/passwd')", language="python")
        print(result.error and result.error.message)


asyncio.run(main())
