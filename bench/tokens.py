"""`python -m bench.tokens`: what tools take of a prompt, as JSON Schema and as declarations.

The tools are those of suites that agents are measured with; `bench/suites/setup` installs them. JSON is what models are
given that call tools one by one: an array of OpenAI's function tools, in which nothing is said of results. Declarations
have the types of results, and every description. Counted with o200k_base, the tokenizer of OpenAI's models; the
estimate is that of Corral, which catalogs count with. `--save` keeps the texts.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from bench.suites import INSTALLED, suites, tokenizer
from corral import Tool
from corral.model.catalog import estimated_tokens
from corral.model.printing.printers import DegreePrinter
from corral.tools import ToolRegistry


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.tokens", description=__doc__)
    parser.add_argument("--save", metavar="FOLDER", type=Path, help="where to write the texts that are counted")
    folder: Path | None = parser.parse_args().save
    if not INSTALLED.exists():
        parser.error("the suites are not installed: run bench/suites/setup")
    count = tokenizer()
    texts = {suite: (len(tools), _texts(tools)) for suite, tools in suites().items()}
    print("| suite | tools | JSON | without spaces | TypeScript | Python | both as estimated |")
    print("|---|---|---|---|---|---|---|")
    for suite, (size, each) in texts.items():
        counts = [f"{count(text):,}" for text in each.values()]
        estimates = ", ".join(f"{estimated_tokens(each[name]):,}" for name in ("TypeScript", "Python"))
        print(f"| {suite} | {size} | {' | '.join(counts)} | {estimates} |")
        for name, text in each.items() if folder is not None else ():
            assert folder is not None
            folder.mkdir(parents=True, exist_ok=True)
            Path(folder, f"{suite} {name}.txt".replace(" ", "-")).write_text(text, encoding="utf-8")


def _texts(tools: list[Tool]) -> dict[str, str]:
    functions = [
        {
            "type": "function",
            "function": {"name": each.name, "description": each.description, "parameters": each.input_schema},
        }
        for each in tools
    ]
    declared = ToolRegistry(*tools).snapshot()
    return {
        "JSON": json.dumps(functions),
        "JSON without spaces": json.dumps(functions, separators=(",", ":")),
        "TypeScript": DegreePrinter(declared, "typescript").declare_whole(),
        "Python": DegreePrinter(declared, "python").declare_whole(),
    }


if __name__ == "__main__":
    main()
