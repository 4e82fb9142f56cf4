"""An agent that works in a repository: a program finds, edits and tests, in a shell that sees nothing else."""

from __future__ import annotations

import asyncio

from corral import Corral
from corral.sessions import Mount, Scratch
from corral.shells import JailedShell, ShellLimits, shell_tools

FILES = {
    "prices.py": "def total(prices):\n    return sum(prices) * 1.19\n",
    "invoice.py": "from prices import total\n\nprint(total([10, 20]))\n",
    "test_prices.py": "from prices import total\n\nassert total([10, 20], tax=0.5) == 45\nprint('passed')\n",
}
PROGRAM = """
const places = await tools.grep({ pattern: "1\\\\.19", glob: "*.py" });
console.log(places.join("\\n"));
const before = await tools.bash({ command: "python3 test_prices.py" });
await tools.edit_file({ path: "prices.py", old: "def total(prices):", new: "def total(prices, tax=0.19):" });
await tools.edit_file({ path: "prices.py", old: "* 1.19", new: "* (1 + tax)" });
const after = await tools.bash({ command: "python3 test_prices.py && python3 invoice.py" });
const outside = await tools.bash({ command: "cat /etc/shadow; ls /home /root" });
return { before: before.exit_code, after: after.stdout, outside: outside.stdout };
"""


async def main() -> None:
    files = [Mount("/workspace", Scratch(bytes=20_000_000, files=1_000))]
    async with JailedShell(files, limits=ShellLimits(memory_mb=512)) as shell, Corral(shell_tools(shell)) as corral:
        for name, text in FILES.items():
            await shell.files.write_text(name, text)
        result = await corral.execute(PROGRAM)
        for entry in result.logs:
            print("console:", entry.text)
        for name, value in result.raise_for_error().value.items():
            print(f"{name}: {value!r}")
        print(await shell.files.read_text("prices.py"), end="")


if __name__ == "__main__":
    asyncio.run(main())
