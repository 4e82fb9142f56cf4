import sys
from pathlib import Path

from ask import agent
from pydantic import TypeAdapter
from pydantic_ai import DeferredToolRequests
from pydantic_ai.messages import ModelMessagesTypeAdapter

messages = ModelMessagesTypeAdapter.validate_json(Path("conversation.json").read_bytes())
requests = TypeAdapter(DeferredToolRequests).validate_json(Path("requests.json").read_bytes())
approvals = {call.tool_call_id: sys.argv[1] == "yes" for call in requests.approvals}
results = requests.build_results(approvals=approvals, metadata=requests.metadata)
print(agent.run_sync(message_history=messages, deferred_tool_results=results).output)
