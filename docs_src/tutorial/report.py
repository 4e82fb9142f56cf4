from shop import get_order, list_orders

from corral import Corral
from corral.sessions import Mount, Scratch

PROGRAM = """
import csv

orders = await tools.list_orders()
with open("orders.csv", "w") as file:
    rows = csv.writer(file)
    rows.writerow(["order", "customer", "total"])
    for order in orders:
        details = await tools.get_order(order=order)
        rows.writerow([order, details["customer"], details["total"]])
f"{len(orders)} orders written"
"""

with Corral([list_orders, get_order]) as corral:
    files = [Mount("/workspace", Scratch(bytes=1_000_000, files=10))]
    with corral.sync.session(files=files) as session:
        result = session.execute(PROGRAM, language="python")
        print(result.value, result.files.created)
        print(session.files.read_text("orders.csv"), end="")
