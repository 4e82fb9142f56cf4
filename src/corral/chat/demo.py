"""`corral chat --demo`: a scripted model that sends real programs to demo tools. It needs no key."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import anyio
from typing_extensions import TypedDict

from corral import Corral, Limits, tool
from corral.chat.turn import ChatTurn, Part, text_of_message
from corral.errors import ToolFailed
from corral.types import Later

SUGGESTIONS = (
    "Refund the customers whose parcels are late",
    "Which customer has waited longest?",
    "Track order 1004",
    "Count the stock on all shelves",
)

_WORD_SECONDS = 0.012
_CODE_CHARS = 24


class Order(TypedDict):
    id: int
    customer: str
    euros: float
    status: str


class Parcel(TypedDict):
    order: int
    carrier: str
    days_late: int


_ORDERS = [
    Order(id=1001, customer="Amara", euros=120.0, status="late"),
    Order(id=1002, customer="Bruno", euros=35.5, status="delivered"),
    Order(id=1003, customer="Chiara", euros=89.9, status="late"),
    Order(id=1004, customer="Dmitri", euros=12.0, status="lost"),
]


@tool(read_only=True)
async def list_orders(status: str | None = None) -> list[Order]:
    """Lists orders, or those with one status: late, delivered or lost."""
    await anyio.sleep(0.12)
    return [order for order in _ORDERS if status in (None, order["status"])]


@tool(read_only=True)
async def track_parcel(order: int) -> Parcel:
    """Asks the carrier for the parcel of an order."""
    await anyio.sleep(0.1 + order % 3 * 0.15)
    if order == 1004:
        raise ToolFailed("the carrier has no parcel of order 1004")
    return Parcel(order=order, carrier="Albatross Mail", days_late=order % 5 + 1)


@tool(needs_approval=True)
async def refund(order: int, euros: float, reason: str) -> str:
    """Refunds a part of an order."""
    await anyio.sleep(0.1)
    return f"refunded {euros:.2f} euros of order {order}: {reason}"


@tool(read_only=True)
async def count_stock(shelf: int) -> int:
    """Counts the articles on a shelf, of 1,000."""
    await anyio.sleep(0.001 * (shelf % 7))
    return shelf * 37 % 101


@dataclass(frozen=True)
class _Step:
    text: str
    code: str


_REFUND = """\
// A tenth of the price for each day of delay.
const late = await tools.list_orders({ status: "late" });
console.log(`${late.length} orders are late`);
const parcels = await Promise.all(late.map((order) => tools.track_parcel({ order: order.id })));
const done: string[] = [];
const left: string[] = [];
for (const [index, parcel] of parcels.entries()) {
  const order = late[index];
  const euros = Math.round(order.euros * 10 * parcel.days_late) / 100;
  try {
    done.push(await tools.refund({ order: order.id, euros, reason: `${parcel.days_late} days late` }));
  } catch (error) {
    console.warn(`${order.customer}: ${(error as Error).message}`);
    left.push(`order ${order.id} of ${order.customer}`);
  }
}
return { done, left };
"""
_LONGEST_WRONG = """\
const late = await tools.list_orders({ status: "late" });
return late.map((order) => order.delay.days);
"""
_LONGEST = """\
const late = await tools.list_orders({ status: "late" });
const parcels = await Promise.all(late.map((order) => tools.track_parcel({ order: order.id })));
return late
  .map((order, index) => ({ customer: order.customer, days_late: parcels[index].days_late }))
  .sort((one, other) => other.days_late - one.days_late);
"""
_TRACK = """\
console.log("asking the carrier");
const parcel = await tools.track_parcel({ order: 1004 });
return parcel.days_late;
"""
_STOCK = """\
const shelves = Array.from({ length: 1000 }, (_, index) => index + 1);
const counts = await Promise.all(
  shelves.map(async (shelf) => {
    const count = await tools.count_stock({ shelf });
    console.log(`shelf ${shelf}: ${count} articles ${"=".repeat(count * 3.6)}`);
    return count;
  }),
);
return { shelves: counts.length, articles: counts.reduce((sum, count) => sum + count, 0) };
"""


def _script(text: str) -> tuple[tuple[_Step, ...], Callable[[Any], str]]:
    """Returns the programs for a message, and a function that makes the answer from the last one's value."""
    request = text.lower()
    if "longest" in request:
        first = _Step("I look at the delay of each late order.", _LONGEST_WRONG)
        second = _Step("Orders have no `delay`; the carrier knows it.", _LONGEST)
        return (first, second), _answer_longest
    if "1004" in request or "track" in request:
        return (_Step("I ask the carrier.", _TRACK),), "The parcel of order 1004 is {} days late.".format
    if "stock" in request or "shelves" in request:
        return (_Step("I count all shelves at the same time.", _STOCK),), _answer_stock
    if "refund" in request or "late" in request:
        step = _Step("I look up late orders and ask the carrier. Each refund needs your approval.", _REFUND)
        return (step,), _answer_refunds
    known = "\n".join(f"- {each}" for each in SUGGESTIONS)
    return (), lambda _: f"I am a script, not a model. I know these requests:\n\n{known}"


def _answer_longest(rows: Any) -> str:
    first, *others = [(each["customer"], f"{each['days_late']} days") for each in rows]
    rest = ", ".join(f"{customer} {days}" for customer, days in others)
    return f"**{first[0]}** has waited longest: {first[1]}. The others: {rest}."


def _answer_stock(counted: Any) -> str:
    return f"There are **{counted['articles']:,}** articles on {counted['shelves']:,} shelves."


def _answer_refunds(refunds: Any) -> str:
    done, left = refunds["done"], refunds["left"]
    lines = [f"- {each}" for each in done] + [f"- not made: {each}" for each in left]
    return f"{len(done)} of {len(lines)} refunds were made:\n\n" + "\n".join(lines)


def demo_corral(ledger: str | None = None) -> Corral:
    """Makes the Corral of the demo. Approvals wait for a click."""
    return Corral(
        [list_orders, track_parcel, refund, count_stock],
        limits=Limits(calls=1_100, log_bytes=220_000, cpu_seconds=60),
        approve=lambda _: Later(),
        approval_seconds=600,
        ledger=ledger,
    )


class DemoAgent:
    """Replies according to a script; its programs really run."""

    def __init__(self, corral: Corral, *, durable: bool = False) -> None:
        self._tool = corral.model.tools(durable=durable)[0]

    async def reply(self, turn: ChatTurn) -> AsyncIterator[Part]:
        """Yields text, programs and their results."""
        own = [message for message in turn.messages if message["role"] == "user"]
        steps, answer = _script(turn.text if turn.result is None else text_of_message(own[-2]))
        value = error = None
        if turn.result is not None:
            steps, value, error = (), turn.result.value, turn.result.error
        for number, step in enumerate(steps):
            yield {"type": "start-step"}
            async for part in _words(f"text-{number}", step.text):
                yield part
            call = f"call-{secrets.token_hex(6)}"
            yield {"type": "tool-input-start", "toolCallId": call, "toolName": self._tool.name}
            written = json.dumps({"code": step.code})
            for start in range(0, len(written), _CODE_CHARS):
                delta = written[start : start + _CODE_CHARS]
                yield {"type": "tool-input-delta", "toolCallId": call, "inputTextDelta": delta}
                await anyio.sleep(_WORD_SECONDS / 2)
            available = {"toolCallId": call, "toolName": self._tool.name, "input": {"code": step.code}}
            yield {"type": "tool-input-available", **available}
            result = await self._tool.run({"code": step.code}, turn.context, tool_call_id=call)
            yield {"type": "tool-output-available", "toolCallId": call, "output": result.model_text()}
            yield {"type": "finish-step"}
            if result.status == "paused":
                async for part in _words("text-paused", "I go on once you have decided; you can leave meanwhile."):
                    yield part
                return
            value, error = result.value, result.error
        conclusion = answer(value) if error is None else f"That failed: {error.message}. A person should look at it."
        async for part in _words("text-last", conclusion):
            yield part


async def _words(part_id: str, text: str) -> AsyncIterator[Part]:
    yield {"type": "text-start", "id": part_id}
    for word in text.split(" "):
        yield {"type": "text-delta", "id": part_id, "delta": f"{word} "}
        await anyio.sleep(_WORD_SECONDS)
    yield {"type": "text-end", "id": part_id}
