from shop import get_order, list_orders

from corral import Corral

PROGRAM = """
const orders = await tools.list_orders();
const details = await Promise.all(orders.map((order) => tools.get_order({ order })));
return orders.filter((_, place) => details[place].status === "damaged");
"""

with Corral([list_orders, get_order]) as corral:
    result = corral.sync.execute(PROGRAM)
    print(result.value, f"after {len(result.tool_calls)} calls")
    print(corral.sync.execute("return await tools.get_order({ number: 1001 })").model_text())
