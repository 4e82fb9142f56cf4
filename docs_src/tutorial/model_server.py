"""A stand-in for a model: it speaks OpenAI's chat completions on loopback, and answers from a short script."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DAMAGED = """
const orders = await tools.list_orders();
const details = await Promise.all(orders.map((order) => tools.get_order({ order })));
const all = orders.map((order, place) => ({ order, ...details[place] }));
const damaged = all.filter((each) => each.status === "damaged");
"""
ANSWER = f"{DAMAGED}return damaged.map(({{ order, customer }}) => `${{order}} of ${{customer}}`);"
REFUND = (
    f"{DAMAGED}return await Promise.all(damaged.map(({{ order, total }}) => tools.refund({{ order, amount: total }})));"
)


def message(messages: list[dict[str, Any]]) -> dict[str, Any]:
    last = messages[-1]
    if last["role"] == "tool" or last["content"].startswith("The program that was paused has ended:"):
        return {"role": "assistant", "content": last["content"].rpartition(" has ended:\n\n")[2]}
    question = last["content"]
    arguments = json.dumps({"code": REFUND if "refund" in question.lower() else ANSWER})
    function = {"name": "execute_code", "arguments": arguments}
    call = {"index": 0, "id": f"call_{len(messages)}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        streamed = request.get("stream", False)  # the page streams replies; ask.py does not
        key, kind = ("delta", "chat.completion.chunk") if streamed else ("message", "chat.completion")
        choice = {"index": 0, key: message(request["messages"]), "finish_reason": "stop"}
        answer = json.dumps({"id": "1", "object": kind, "created": 0, "model": "script", "choices": [choice]})
        body = (f"data: {answer}\n\ndata: [DONE]\n\n" if streamed else answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if streamed else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not printed."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", 8901), Handler).serve_forever()
