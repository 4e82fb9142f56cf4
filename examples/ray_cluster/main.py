"""Programs on the nodes of a Ray cluster, with tools at the driver: `python examples/ray_cluster/main.py`."""

# pyright: reportMissingImports=false, reportUnknownMemberType=false

import asyncio

import ray

from corral import Corral, tool
from corral.cluster import RaySandbox

TEXTS = {1: "the cat sat on the mat", 2: "a dog and a cat", 3: "no animal at all"}


@tool(read_only=True)
async def read(document: int) -> str:
    """Returns the text of a document."""
    return TEXTS[document]


SOURCE = """
from collections import Counter
words = Counter((await tools.read(document={document})).split())
words.most_common(1)[0]
"""


async def main() -> None:
    ray.init(log_to_driver=False)  # RAY_ADDRESS names a cluster; without it, Ray starts one node here
    async with Corral([read], sandbox=RaySandbox(capacity=4), containment="landlock") as corral:
        sources = [SOURCE.replace("{document}", str(number)) for number in TEXTS]
        results = await asyncio.gather(*(corral.execute(source, language="python") for source in sources))
    for number, result in zip(TEXTS, results, strict=True):
        print(number, *result.value)
    ray.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
