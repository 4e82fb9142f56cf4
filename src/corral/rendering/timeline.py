"""Time line of a recorded execution as one HTML file, without network; every text in it is data."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Protocol

from corral.rendering.full_text import escape_hidden
from corral.rendering.preview import preview_json, preview_text

_MOST_STEPS = 2_000
_VALUES_CHARS = 2_000_000
"""Maximum for all inputs and outputs together, beyond 200 for each."""
_VALUE_CHARS = 2_000
_CONSOLE_CHARS = 500_000
_SOURCE_CHARS = 200_000

_STYLE = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem }
input { width: 100% }
pre { white-space: pre-wrap; overflow-wrap: anywhere; padding: .5rem; border: 1px solid #8886 }
li.now { font-weight: bold } ol { padding-left: 2rem } .note { opacity: .75 }
"""
_SCRIPT = """
const { steps, calls, logs } = JSON.parse(document.getElementById("data").textContent);
const get = (id) => document.getElementById(id);
const slider = get("at");
const add = (list, text, kind) => {
  const item = document.createElement("li");
  item.textContent = text;
  item.className = kind;
  list.append(item);
};
const show = () => {
  const at = Number(slider.value), step = steps[at];
  const replied = new Map(steps.slice(0, at).map((each, index) => [each.n, index]));
  get("where").textContent = step.n
    ? `Before the reply to call ${step.n}, ${step.tool}, at ${step.ms} ms: ${step.waiting.length} calls wait`
    : "At the end";
  get("console").textContent = logs.slice(0, step.logs).join("\\n");
  const list = get("calls");
  list.replaceChildren();
  for (const [n, tool, input, output] of calls)
    if (replied.has(n)) add(list, `${n} ${tool}(${input}): ${output}`, "");
    else if (step.waiting.includes(n)) add(list, `${n} ${tool}(${input}) waits`, n === step.n ? "now" : "");
};
slider.max = steps.length - 1;
slider.value = steps.length - 1;
slider.addEventListener("input", show);
show();
"""
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; base-uri 'none'; form-action 'none'; \
style-src {style_hash}; script-src {script_hash}">
<title>{name}</title>
<style>{style}</style>
</head>
<body>
<h1>{name}</h1>
<p class="note">{status}</p>
<label for="at">State at a call</label>
<input id="at" type="range" min="0" value="0">
<p id="where" role="status"></p>
<h2>Calls</h2>
<ol id="calls"></ol>
<h2>Console</h2>
<pre id="console"></pre>
<h2>Program</h2>
<pre>{source}</pre>
<h2>Outcome</h2>
<pre>{outcome}</pre>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


class _Step(Protocol):
    @property
    def sequence(self) -> int: ...
    @property
    def tool(self) -> str: ...
    @property
    def logs(self) -> int: ...
    @property
    def waiting(self) -> Sequence[int]: ...
    @property
    def active_ms(self) -> float: ...


def timeline_data(result: Any, steps: Iterable[_Step]) -> dict[str, Any]:
    """Returns plain data for a slider over the replies of a replayed execution: `steps`, before each of the replies and
    at the end, `calls` and `logs`.

    `result` is its `ExecutionResult`. It has at most 2,000 replies, with shortened values, in which characters that
    hide or reorder others are escaped.
    """
    calls = result.tool_calls[:_MOST_STEPS]
    most = max(200, min(_VALUE_CHARS, _VALUES_CHARS // (2 * len(calls) + 1)))
    known = {call.sequence for call in calls}
    lines, room = list[str](), _CONSOLE_CHARS
    for entry in result.logs:
        lines.append(_plain(preview_text(entry.text, max(0, min(room, 10_000)))))
        room -= len(entry.text)
        if room < 0:
            break
    shown = [
        {
            "n": each.sequence,
            "tool": escape_hidden(each.tool),
            "ms": round(each.active_ms),
            "logs": each.logs,
            "waiting": [number for number in each.waiting if number in known],
        }
        for each in steps
        if each.sequence in known
    ]
    left = [call.sequence for call in calls if call.duration_ms is None]
    return {
        "steps": [*shown[:_MOST_STEPS], {"n": 0, "tool": "", "ms": 0, "logs": len(lines), "waiting": left}],
        "calls": [
            (
                call.sequence,
                escape_hidden(call.name),
                escape_hidden(preview_json(call.input, most)),
                escape_hidden(
                    preview_text(call.error.message, most) if call.error else preview_json(call.output, most)
                ),
            )
            for call in calls
        ],
        "logs": lines,
    }


def timeline_page(result: Any, steps: Iterable[_Step], source: str) -> str:
    """Returns a page in ASCII with a slider over the replies of a replayed execution: its console and calls until
    then."""
    outcome = preview_text(result.error.message, 10_000) if result.error else preview_json(result.value, 10_000)
    text = json.dumps(timeline_data(result, steps))  # in ASCII
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    page = _PAGE.format(
        style_hash=_hash(_STYLE),
        script_hash=_hash(_SCRIPT),
        style=_STYLE,
        script=_SCRIPT,
        name=escape(escape_hidden(result.execution_id)),
        status=escape(f"{result.status}, {len(result.tool_calls)} calls"),
        source=escape(_plain(preview_text(source, _SOURCE_CHARS))),
        outcome=escape(_plain(outcome)),
        data=text,
    )
    return page.encode("ascii", "xmlcharrefreplace").decode()


def _plain(text: str) -> str:
    """Escapes characters that are invisible or reorder others, but for spaces and line breaks."""
    return "".join(each if each.isprintable() or each in "\n\t" else f"\\u{{{ord(each):x}}}" for each in text)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
