"""`corral executions`: shows durable executions in a ledger, decides on their calls, and continues them."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import json
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from anyio import to_thread

from corral import ApprovalRequest, Approved, ConfigError, Corral, Denied, ExecutionResult
from corral.cli.options import add_tools, existing_ledger
from corral.cli.parsing import Commands, add_command
from corral.cli.report import error_lines, exit_code
from corral.cli.run_options import add_running, running
from corral.cli.screen import Screen, counted, printable, screen
from corral.cli.tool_loading import load_tools
from corral.rendering.full_text import escape_hidden
from corral.rendering.preview import json_text
from corral.rendering.timeline import timeline_page
from corral.running.executions import ExecutionRecord, missing_tools
from corral.types import Retry, Settled, Settlement

_DAY_SECONDS = 86_400.0
_WITHOUT_ID = ("list", "pending", "costs", "prune")
_MOST_COSTS = 100_000
"""Maximum number of executions that `costs` reads."""
_NAMES_SHOWN = 5
_HELP = """\
Shows durable executions in a ledger, decides on their calls, and continues them.

examples:
  corral executions list --ledger runs.db
  corral executions show execution-1f0c9a7b2d3e4f50 --ledger runs.db
  corral executions pending --ledger runs.db
  corral executions approve execution-1f0c9a7b2d3e4f50 4:9c04a1b2c3d4e5f6 5:0a1b2c3d4e5f6071 --ledger runs.db
  corral executions resume execution-1f0c9a7b2d3e4f50 --tools app.tools --ledger runs.db
  corral executions replay execution-1f0c9a7b2d3e4f50 --until 4 --ledger runs.db
  corral executions replay execution-1f0c9a7b2d3e4f50 --source corrected.ts --ledger runs.db
  corral executions rollback execution-1f0c9a7b2d3e4f50 --until 4 --tools app.tools --ledger runs.db

`pending` shows all calls that wait, why, and where a doubtful value came from. `approve`, `deny`, `retry` and `settle`
decide on the calls with these numbers, or on all of their kind. A number with a digest decides on the call only if
it is unchanged since it was shown. `retry` makes a call again that may have taken effect when its host was lost, and
`settle --value JSON` answers it.
`rollback` undoes changes, the last one first, by the `undo` of their tools; calls in `replay --until N` stay.
The ledger's keys are in CORRAL_LEDGER_KEYS.

exit codes: 0 done, 1 the program failed or not all changes were undone, 2 wrong usage or set-up, 3 paused
"""


def add_executions(commands: Commands) -> None:
    parser = add_command(
        commands,
        "executions",
        _executions,
        _HELP,
        takes="list|pending|show|approve|deny|retry|settle|resume|replay|rollback|costs|prune",
    )
    parser.add_argument("action", choices=tuple(_ACTIONS), metavar="ACTION", help=", ".join(_ACTIONS))
    parser.add_argument("execution", nargs="?", metavar="ID", help="the execution; not for list, pending, costs, prune")
    parser.add_argument(
        "numbers", nargs="*", type=_number, metavar="N", help="calls to decide on: numbers, or number:digest as shown"
    )
    parser.add_argument(
        "--for-session", action="store_true", help="for approve: allow these destinations for the rest of the session"
    )
    parser.add_argument("--ledger", required=True, metavar="PATH|URL", help="a SQLite database, or a postgresql:// URL")
    parser.add_argument("--by", metavar="NAME", help="who decides; default: this user")
    parser.add_argument("--reason", default="", metavar="TEXT", help="for deny: the program sees it")
    parser.add_argument("--value", metavar="JSON", help="for settle: the result of the call")
    parser.add_argument("--until", type=int, metavar="N", help="for replay and rollback: the call to end before")
    parser.add_argument("--html", metavar="FILE", help="for replay: write a page with a time line")
    parser.add_argument("--source", metavar="FILE", help="for replay: a dry run of this program against the record")
    days = "for prune: what ended longer ago, default 30; for costs: the last days"
    parser.add_argument("--days", type=float, metavar="N", help=days)
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_tools(parser)
    add_running(parser)


def _executions(arguments: argparse.Namespace) -> int:
    if (arguments.execution is None) != (arguments.action in _WITHOUT_ID):
        raise ConfigError(f"`corral executions {arguments.action}` takes {_takes(arguments.action)}")
    if arguments.source is not None and arguments.action != "replay":
        raise ConfigError("--source applies only to replay, which runs that program dry")
    with screen() as view:
        return asyncio.run(_ACTIONS[arguments.action](arguments, view))


def _takes(action: str) -> str:
    return "no ID" if action in _WITHOUT_ID else "the ID of an execution; `corral executions list` shows them"


async def _list(arguments: argparse.Namespace, view: Screen) -> int:
    async with _ledger(arguments) as corral:
        for record in await corral.executions.list():
            view.out(json_text(_data(record)) if arguments.json else _line(record))
    return 0


async def _show(arguments: argparse.Namespace, view: Screen) -> int:
    async with _ledger(arguments) as corral:
        record = await corral.executions.get(arguments.execution)
    if arguments.json:
        view.out(json_text(_data(record), indent=2))
        return 0
    assert record.request is not None
    view.out(_line(record))
    view.out(printable(record.request.source))
    for call in record.pending:
        view.out("")
        _show_call(call, "is decided, resume it" if call.sequence in record.decided else None, view)
    if record.error is not None:
        view.out(printable(f"error[{record.error.code}]: {record.error.message}"))
    elif record.value is not None:
        view.out(json_text(record.value, indent=2))
    return 0


def _show_call(call: ApprovalRequest, state: str | None, view: Screen) -> None:
    """Shows a waiting call: why a person is asked, and the number and digest to decide on it."""
    state = f"waits for {_decision_for(call)}" if state is None else state
    view.out(f"call {call.sequence}:{call.digest} {state}: {escape_hidden(call.tool)}({call.shown()})")
    if call.reason is not None:
        view.out(f"  {call.reason}")
    for doubt in call.doubts:
        view.out(f"  {printable(doubt.text)}")


async def _pending(arguments: argparse.Namespace, view: Screen) -> int:
    async with _ledger(arguments) as corral:
        waiting = await corral.executions.waiting()
    for execution in waiting:
        if arguments.json:
            view.out(
                json_text(
                    {"execution_id": execution.execution_id, "calls": [_waiting_data(each) for each in execution.calls]}
                )
            )
            continue
        owner = f"{execution.context.user_id} {execution.context.organization_id or ''}".rstrip()
        view.out(f"{execution.execution_id}  {escape_hidden(owner)}")
        for call in execution.calls:
            _show_call(call, None, view)
    return 0


def _waiting_data(call: ApprovalRequest) -> dict[str, object]:
    return {
        "sequence": call.sequence,
        "tool": call.tool,
        "input": call.input,
        "reason": call.reason,
        "doubts": [asdict(each) for each in call.doubts],
        "seen": call.seen,
        "digest": call.digest,
    }


async def _decide(arguments: argparse.Namespace, view: Screen) -> int:
    action = arguments.action
    if (arguments.value is not None) != (action == "settle"):
        raise ConfigError("settle needs --value with the result of the call, as JSON; other actions do not take it")
    if arguments.for_session and action != "approve":
        raise ConfigError("--for-session is only for approve: it also allows the doubtful destinations from now on")
    digests = {number: digest for number, digest in arguments.numbers if digest}
    decisions: Mapping[str, Callable[[], Settlement]] = {
        "approve": lambda: Approved(for_session=arguments.for_session),
        "deny": lambda: Denied(arguments.reason),
        "retry": Retry,
        "settle": lambda: Settled(_value(arguments.value)),
    }
    async with _ledger(arguments) as corral:
        record = await corral.executions.get(arguments.execution)
        left = [each for each in record.pending if each.sequence not in record.decided]
        numbers = [number for number, _ in arguments.numbers] or [
            each.sequence for each in left if action == "deny" or _fits(action, each)
        ]
        decided = await corral.executions.settle(
            arguments.execution,
            {number: decisions[action]() for number in numbers},
            by=arguments.by or getpass.getuser(),
            digests=digests,
        )
    for number in sorted(decided):
        view.out(f"call {number}: {action}")
    if missed := sorted({*numbers} - decided):
        text = "not decided, because they have changed, or do not wait for a decision"
        raise ConfigError(f"{text}: {', '.join(map(str, missed))}")
    if not numbers:
        raise ConfigError(f"no call of {arguments.execution} waits for this decision")
    return 0


async def _resume(arguments: argparse.Namespace, view: Screen) -> int:
    return await _run(arguments, view, lambda corral: corral.executions.resume(arguments.execution))


async def _replay(arguments: argparse.Namespace, view: Screen) -> int:
    if arguments.html is not None:
        if arguments.until is not None:
            raise ConfigError("--html shows the state at every call; leave out --until")
        if arguments.source is not None:
            raise ConfigError("--html shows the recorded program; leave out --source")
        return await _run(arguments, view, lambda corral: _write_timeline(corral, arguments))
    source = None if arguments.source is None else _text(arguments.source)
    return await _run(
        arguments,
        view,
        lambda corral: corral.executions.replay(arguments.execution, until=arguments.until, source=source),
    )


async def _write_timeline(corral: Corral, arguments: argparse.Namespace) -> ExecutionResult:
    record = await corral.executions.get(arguments.execution)
    timeline = await corral.executions.timeline(arguments.execution)
    assert record.request is not None
    page = timeline_page(timeline.result, timeline.steps, record.request.source)
    await to_thread.run_sync(lambda: Path(arguments.html).write_text(page, encoding="ascii"))
    return timeline.result


async def _run(arguments: argparse.Namespace, view: Screen, run: Callable[[Corral], Awaitable[ExecutionResult]]) -> int:
    async with _ledger(arguments) as corral:
        record = await corral.executions.get(arguments.execution)
    request = record.request
    assert request is not None
    tools = load_tools(arguments.tools, arguments.mcp_configs)
    settings = running(arguments, request.language, pool_size=0)
    async with Corral(tools, **settings, ledger=arguments.ledger) as corral:
        if arguments.action == "resume" and (missing := missing_tools(record.tools, record.pending, corral.tools)):
            names = f"{', '.join(missing[:_NAMES_SHOWN])}{', …' if len(missing) > _NAMES_SHOWN else ''}"
            raise ConfigError(
                f"its program would fail for good without {names}: pass them with --tools or --mcp-config"
            )
        result = await run(corral)
    if arguments.json:
        view.out(result.to_json(indent=2))
        return exit_code(result)
    for entry in result.logs:
        view.out(printable(entry.text))
    for call in result.tool_calls:
        outcome = "waits" if call.duration_ms is None else "failed" if call.error else "done"
        view.err(f"{call.sequence:4} {escape_hidden(call.name)} {outcome}{', on record' if call.replayed else ''}")
    if result.value is not None:
        view.out(result.value if isinstance(result.value, str) else json_text(result.value, indent=2))
    for line in error_lines(result, request.source, "the program", view, tools_given=True):
        view.err(line)
    if arguments.source is not None:
        for call in result.pending:
            view.out(f"it would call {escape_hidden(call.tool)}({call.shown()})")
    elif result.status == "paused":
        view.err(paused_line(result, arguments.ledger))
    return exit_code(result)


async def _rollback(arguments: argparse.Namespace, view: Screen) -> int:
    tools = load_tools(arguments.tools, arguments.mcp_configs)
    async with Corral(tools, ledger=existing_ledger(arguments.ledger), check=False) as corral:
        report = await corral.executions.rollback(arguments.execution, until=arguments.until)
    for call in report.calls:
        line = f"{call.sequence:4} {escape_hidden(call.tool)} {call.outcome.replace('_', ' ')}"
        view.out(line if call.reason is None else f"{line}: {printable(call.reason)}")
    if not report.calls:
        view.out(f"{arguments.execution} has changed nothing")
    return 0 if report.complete else 1


async def _costs(arguments: argparse.Namespace, view: Screen) -> int:
    since = None if arguments.days is None else time.time() - arguments.days * _DAY_SECONDS
    async with _ledger(arguments) as corral:
        costs = await corral.executions.costs(since=since, limit=_MOST_COSTS)
    if not arguments.json and costs:
        view.out("day         calls  failed    seconds  input bytes  output bytes  tool  user  organization")
    for cost in sorted(costs, key=lambda each: (each.day, each.organization_id or "", each.user_id, each.tool)):
        numbers = f"{cost.calls:5}  {cost.failed:6}  {cost.duration_ms / 1000:9.3f}  {cost.input_bytes:11}"
        names = (cost.tool, cost.user_id, cost.organization_id or "")
        shown = "  ".join(map(escape_hidden, names)).rstrip()
        line = f"{cost.day}  {numbers}  {cost.output_bytes:12}  {shown}"
        view.out(json_text(asdict(cost)) if arguments.json else line)
    return 0


async def _prune(arguments: argparse.Namespace, view: Screen) -> int:
    async with _ledger(arguments) as corral:
        days = arguments.days
        count = await corral.executions.prune(None if days is None else days * _DAY_SECONDS)
    view.out(f"{counted(count, 'execution')} deleted")
    return 0


def paused_line(result: ExecutionResult, ledger: str) -> str:
    """Returns a line about an execution that waits for people."""
    if not result.pending:
        return "paused: the record ends here"
    waiting = counted(len(result.pending), "decision")
    shown = "URL" if "://" in ledger else ledger  # which can have a password
    return f"paused, {waiting} missing: corral executions show {result.execution_id} --ledger {shown}"


_ACTIONS: Mapping[str, Callable[[argparse.Namespace, Screen], Coroutine[Any, Any, int]]] = {
    "list": _list,
    "pending": _pending,
    "show": _show,
    "approve": _decide,
    "deny": _decide,
    "retry": _decide,
    "settle": _decide,
    "resume": _resume,
    "replay": _replay,
    "rollback": _rollback,
    "costs": _costs,
    "prune": _prune,
}


def _ledger(arguments: argparse.Namespace) -> Corral:
    return Corral(ledger=existing_ledger(arguments.ledger), check=False)


def _fits(action: str, call: ApprovalRequest) -> bool:
    return (call.reason is None) == (action == "approve")


def _decision_for(call: ApprovalRequest) -> str:
    return "approve or deny" if call.reason is None else "retry, settle or deny"


def _number(text: str) -> tuple[int, str]:
    """Reads the number of a call, with or without the digest of the call that was shown."""
    number, _, digest = text.partition(":")
    return int(number), digest


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--source {path} cannot be read: {error}") from None


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--value {text!r} is not JSON: {error}") from None


def _line(record: ExecutionRecord) -> str:
    moment = datetime.fromtimestamp(record.updated).astimezone().isoformat(sep=" ", timespec="seconds")[:19]
    owner = escape_hidden(f"{record.user_id} {record.organization_id or ''}".rstrip())
    return f"{record.execution_id}  {record.status:11}  {moment}  {owner}"


def _data(record: ExecutionRecord) -> dict[str, object]:
    data: dict[str, object] = {
        name: getattr(record, name)
        for name in ("execution_id", "status", "user_id", "organization_id", "created", "updated")
    }
    if record.request is not None:
        data["source"] = record.request.source
        data["value"], data["error"] = record.value, record.error
        data["pending"] = [
            {**_waiting_data(call), "decided": call.sequence in record.decided} for call in record.pending
        ]
    return data
