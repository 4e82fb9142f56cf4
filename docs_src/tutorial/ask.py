import os
import sys
from pathlib import Path

from pydantic import TypeAdapter
from pydantic_ai import Agent, DeferredToolRequests
from shop import open_shop

from corral.integrations.pydantic_ai import CodeMode

agent = Agent(
    os.environ["MODEL"],
    instructions="You help the staff of a shop.",
    capabilities=[CodeMode(open_shop())],
    output_type=[str, DeferredToolRequests],
)

if __name__ == "__main__":
    result = agent.run_sync(sys.argv[1])
    if isinstance(result.output, DeferredToolRequests):
        for call in result.output.approvals:
            for each in result.output.metadata[call.tool_call_id]["calls"]:
                print("needs approval:", each["tool"], each["input"])
        Path("conversation.json").write_bytes(result.all_messages_json())
        Path("requests.json").write_bytes(TypeAdapter(DeferredToolRequests).dump_json(result.output))
    else:
        print(result.output)
