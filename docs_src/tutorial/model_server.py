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
    if messages[-1]["role"] == "tool":
        return {"role": "assistant", "content": messages[-1]["content"]}
    question = next(each["content"] for each in reversed(messages) if each["role"] == "user")
    arguments = json.dumps({"code": REFUND if "refund" in question.lower() else ANSWER})
    call = {"id": "call_1", "type": "function", "function": {"name": "execute_code", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        choice = {"index": 0, "message": message(request["messages"]), "finish_reason": "stop"}
        answer = {"id": "1", "object": "chat.completion", "created": 0, "model": "script", "choices": [choice]}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not printed."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", 8901), Handler).serve_forever()
