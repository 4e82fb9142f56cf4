"""Tokens are estimated about as real tokenizers count them."""

from __future__ import annotations

import pytest

from corral.model.catalog import estimated_tokens

TYPESCRIPT = """\
// Represents a payment or refund transaction for an order
type OrderPayment = {
  transaction_type: "payment" | "refund"; // Type of transaction
  amount: number;
  payment_method_id: string; // ID of the payment method used, such as 'credit_card_0000000'
};
declare const tools: {
  // Cancels a pending order. The user has to confirm it (yes or no) before.
  cancel_pending_order(input: { order_id: string; reason?: string }): Promise<{ status: string; payments: OrderPayment[] }>;
  // Newest first.
  listOrders(): Promise<string[]>;
};
"""
PYTHON = '''\
from typing import Literal, NotRequired, TypedDict
class OrderPayment(TypedDict):
    """Represents a payment or refund transaction for an order"""
    transaction_type: Literal["payment", "refund"]
    amount: float #: In cents.
    method: NotRequired[str | None]
class tools:
    @staticmethod
    async def cancel_pending_order(*, order_id: str, reason: str = "ordered by mistake") -> list[OrderPayment]:
        """Cancels a pending order. The user has to confirm it (yes or no) before."""
'''
SCHEMA = """\
{"type": "object", "properties": {"order_id": {"type": "string", "description": "The order id, such as '#W0000000'."}, \
"items": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 20}, "limit": {"type": "integer", \
"default": 10}}, "required": ["order_id", "items"], "additionalProperties": false}
"""
PROSE = """\
A model writes one program, in TypeScript or Python, against your typed tools; the program runs in a sandbox, and each call
in it comes back to your process, where the tool runs. Wherever 1,250 characters were allowed, 3.5 % more are now.
"""
COUNTED = [
    pytest.param(TYPESCRIPT, 133, 146, id="TypeScript"),
    pytest.param(PYTHON, 115, 121, id="Python"),
    pytest.param(SCHEMA, 100, 97, id="JSON Schema"),
    pytest.param(PROSE, 59, 59, id="prose"),
]
"""With the tokens of o200k_base and of the tokenizer for Claude 2."""


@pytest.mark.parametrize(("text", "o200k", "claude"), COUNTED)
def test_an_estimate_is_near_what_tokenizers_count(text: str, o200k: int, claude: int) -> None:
    estimate = estimated_tokens(text)
    assert 0.9 * min(o200k, claude) <= estimate <= 1.1 * max(o200k, claude)


@pytest.mark.parametrize("text", ["", "a", " ", "\n", "_", "é", "\x00", "\U0001f980"])
def test_nothing_but_an_empty_text_has_no_tokens(text: str) -> None:
    assert estimated_tokens(text) == (1 if text else 0)


@pytest.mark.parametrize("text", [" ", "\n ", "_", "a", "A", "{", "é", "\x00", "\ud800"])
def test_long_texts_of_one_kind_have_tokens_in_proportion(text: str) -> None:
    once = estimated_tokens(text * 1_000)
    assert estimated_tokens(text * 100_000) <= 100 * once
    assert once <= 1_000 * len(text)
