import multiprocessing

from corral import Corral, tool
from corral.tools import Tool


@tool
def double(n: int) -> int:
    """Twice the number."""
    return 2 * n


def work(tools: list[Tool], n: int) -> None:
    with Corral(tools=tools) as corral:
        print(corral.sync.execute(f"return await tools.double({{ n: {n} }})").value)


if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=work, args=([double], 21))
    child.start()
    child.join()
