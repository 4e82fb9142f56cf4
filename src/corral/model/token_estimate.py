"""Estimate of the number of tokens in a text, without a tokenizer."""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r" ?[A-Z]?[a-z]{1,12}"  # a word, or a part of one in camel case; a space before it belongs to it
    r"| ?[A-Z]{1,4}"
    r"|[0-9]{1,3}"
    r"| ?[!-/:-@\[-^`{-~]{1,4}\n?"  # signs next to each other, and the end of the line after them
    r"|_|\s+"
    r"|[^\x00-\x7f]{1,2}"
    r"|[\x00-\x08\x0e-\x1b\x7f]"
)
"""About one token each. Chosen so that the counts lie between those of OpenAI's o200k_base and those of the tokenizer
that Anthropic published for Claude 2, on declarations in both languages, JSON Schema and English (docs/catalog.md)."""


def estimated_tokens(text: str) -> int:
    """About as many tokens as a model's tokenizer makes of the text, in time linear in its length."""
    return len(_TOKEN.findall(text))
