import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from anthropic.types.beta import BetaToolUseBlock

from corral.shells import LocalShell
from corral.shells.integrations.anthropic import ComputerTools


async def main() -> None:
    with TemporaryDirectory() as folder:
        async with LocalShell(Path(folder)) as shell, ComputerTools(shell) as tools:
            for command in ("mkdir src && cd src", "echo hello > a.txt; basename $PWD", "cat a.txt; false"):
                block = BetaToolUseBlock(type="tool_use", id="1", name="bash", input={"command": command})
                answer = await tools.call(block)
                assert answer is not None
                print(answer.get("content"))


asyncio.run(main())
