"""A session: a program in TypeScript fetches orders and zips them, one in Python reads them and draws a picture.

Usage: `python examples/report/main.py [PICTURE]`. The first run fetches one package of npm, as its lock says.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
from corral import Corral, ExecutionContext
from corral.egress import Header, Network
from corral.packages import NpmPackages, PackageFolder
from corral.sandboxes import CPythonSandbox

from service import KEY, orders

HERE = Path(__file__).parent
PACKAGES = HERE / "corral-packages"


async def run() -> bytes | None:
    """Runs both programs, and returns the picture; None if one of them failed."""
    with orders() as origin:
        network = Network(
            allow=[origin],
            credentials={"127.0.0.1": Header("Authorization", KEY)},
            exempt_networks=["127.0.0.1/32"],
        )
        async with (
            Corral(sandbox={"typescript": "deno", "python": CPythonSandbox(packages=["pandas"])}) as corral,
            corral.session(
                context=ExecutionContext(user_id="ann"), packages=NpmPackages(PACKAGES), network=network
            ) as session,
        ):
            for name, language in (("collect.ts", "typescript"), ("draw.md", "python")):
                source = (HERE / "programs" / name).read_text(encoding="utf-8")
                result = await session.execute(source, language=language, env={"ORDERS": origin})
                made = ", ".join(result.files.created) if result.files else ""
                print(f"{name}: {result.status} in {result.duration_ms / 1000:.1f} s: {result.value}\n  files: {made}")
                if not result.success:
                    print(result.model_text())
                    return None
            return await session.files.read_bytes("totals.png")


def main() -> int:
    if not (PACKAGES / "node_modules").is_dir():
        PackageFolder(PACKAGES).install()
    content = anyio.run(run)
    if content is None:
        return 1
    picture = Path(sys.argv[1] if len(sys.argv) > 1 else "totals.png")
    picture.write_bytes(content)
    print(f"picture: {picture}, {len(content):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
