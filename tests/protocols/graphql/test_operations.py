"""Operations of a bare client over a real server."""

from __future__ import annotations

import threading

import pytest

from corral import define_tool
from tests.protocols.graphql.serving import Client, Served


def test_read_only_tools_are_queries_with_types(client: Client) -> None:
    query = "query($p: PointInput!) { a: move(point: $p, by: 2) { x y tags side } b: move(point: {x: 1, side: left}) { side } }"
    assert client.data(query, p={"x": 3, "tags": ["t"]}) == {
        "a": {"x": 5, "y": 0.5, "tags": ["t"], "side": None},
        "b": {"side": "left"},
    }


def test_other_tools_are_mutations_whose_errors_have_codes(client: Client) -> None:
    assert client.data("mutation { add(a: 1, b: 2) quote }") == {"add": 3, "quote": 1}
    result = client.run("mutation { refuse quote break_down pay(euros: 50) add(a: 1, b: 2) }")
    assert result["data"] == {"refuse": None, "quote": None, "break_down": None, "pay": None, "add": 3}
    errors = {error["path"][0]: error for error in result["errors"]}
    assert {field: error["extensions"]["code"] for field, error in errors.items()} == {
        "refuse": "tool_error",
        "quote": "rate_limited",
        "break_down": "tool_failed",
        "pay": "approval_denied",
    }
    assert errors["refuse"]["message"] == "größer\nnot today"
    assert errors["quote"]["extensions"]["retryAfterSeconds"] > 0
    assert "hunter2" not in str(result)


def test_a_tool_by_its_name_with_values_of_any_shape(client: Client) -> None:
    call = 'mutation($i: JSON) { callTool(name: "echo", input: $i) }'
    value = {"a": [1, None, {"b": "c"}], "d": 1.5}
    assert client.data(call, i=value) == {"callTool": value}
    assert client.data('{ callTool(name: "tree") }') == {
        "callTool": {"name": "root", "children": [{"name": "leaf", "children": []}]}
    }
    assert client.codes('{ callTool(name: "add", input: {a: 1, b: 2}) }') == ["access_denied"]
    assert client.codes('{ callTool(name: "nobody") }') == ["tool_not_found"]
    assert client.codes('mutation { callTool(name: "add", input: {a: 1}) }') == ["invalid_arguments"]


def test_numbers_beyond_those_of_javascript_and_values_without_a_form(client: Client) -> None:
    assert client.data("{ a: large(digits: 15) b: large(digits: 20) }") == {"a": 10**15, "b": str(10**20)}
    add = "mutation($a: BigInt!) { add(a: $a, b: 1) }"
    assert client.data(add, a=str(2**60)) == client.data(add, a=2**60) == {"add": str(2**60 + 1)}
    assert client.data("{ odd_things { values } }") == {
        "odd_things": {"values": {"big": 2**70, "nan": None, "bytes": "AP8="}}
    }


def test_recursive_parts_are_json(client: Client) -> None:
    assert client.data("{ tree { name children } }") == {
        "tree": {"name": "root", "children": [{"name": "leaf", "children": []}]}
    }


def test_items_of_a_stream_are_results_of_a_subscription(client: Client) -> None:
    assert client.events("subscription { n: numbers(n: 3) }") == [{"data": {"n": n}} for n in range(3)]
    assert client.data("mutation { numbers(n: 3) }") == {"numbers": [0, 1, 2]}
    [refused] = client.events('subscription { numbers(n: "x") }')
    assert refused["errors"][0]["extensions"]["code"] == "malformed_message"
    [single] = client.events("{ large(digits: 1) }")
    assert single == {"data": {"large": 10}}
    response = client.send({"query": "subscription { numbers(n: 3) }"}, accept="application/json")
    assert "text/event-stream" in response.json()["errors"][0]["message"]


def test_calls_of_own_runtimes_lose_nothing(client: Client) -> None:
    calls = [
        {"sequence": 1, "tool": "odd_things.values"},
        {"sequence": 2, "tool": "echo", "input": {"$bigint": str(2**70)}, "tagged": True},
        {"sequence": 3, "tool": "refuse"},
        {"sequence": 4, "tool": "numbers", "input": {"n": 2}},
    ]
    operation = "($c: [JSON!]!) { _calls(calls: $c) }"
    lines = {line["sequence"]: line for line in client.data(f"mutation {operation}", c=calls)["_calls"]}
    assert lines[1]["value"] == {"big": {"$bigint": str(2**70)}, "nan": {"$number": "NaN"}, "bytes": {"$bytes": "AP8="}}
    assert lines[1]["tagged"]
    assert lines[2]["value"] == {"$bigint": str(2**70)}
    assert lines[3]["error"]["code"] == "tool_error"
    assert lines[4]["value"] == [0, 1]
    events = [event["data"]["_calls"] for event in client.events(f"subscription {operation}", c=calls)]
    assert {event["sequence"]: event for event in events} == {**lines, 4: {"sequence": 4, "alone": True}}
    events = [event["data"]["_calls"] for event in client.events(f"subscription {operation}", c=calls[3:])]
    assert events == [{"sequence": 4, "items": [0, 1]}, {"sequence": 4}]
    [broken] = client.events(f"subscription {operation}", c=[1])
    assert broken["errors"][0]["extensions"]["code"] == "malformed_message"


def test_a_token_sees_the_tools_that_its_scopes_allow(served: Served, client: Client) -> None:
    shown = client.data(
        "{ __schema { queryType { fields { name } } mutationType { fields { name } } types { name } } }"
    )
    text = str(shown)
    assert "inbox" in text
    assert "'send'" not in text  # its scope is missing
    assert client.data("mutation { inbox }") == {"inbox": ["Lunch?"]}
    assert client.codes('mutation { send(text: "x") }') == ["malformed_message"]
    assert client.codes('mutation { callTool(name: "send", input: {text: "x"}) }') == ["scope_denied"]
    denied = [event for event in served.audit.events if event.tool == "send"]
    assert [event.protocol for event in denied] == ["graphql"]
    sdl = client.get("/schema.graphql").text
    assert "inbox" in sdl
    assert "send(" not in sdl


def test_tools_that_come_and_go(served: Served, client: Client) -> None:
    async def late(input: object) -> str:
        return "here"

    added = define_tool(name="late", execute=late, read_only=True)
    assert client.codes("{ late }") == ["malformed_message"]
    served.server.do(lambda: served.corral.tools.register(added))
    assert client.data("{ late }") == {"late": "here"}
    served.server.do(lambda: served.corral.tools.remove("late"))
    assert client.codes("{ late }") == ["malformed_message"]


def test_queries_run_at_the_same_time(served: Served, client: Client) -> None:
    both = threading.Barrier(2, timeout=30)

    def meet(input: object) -> str:
        both.wait()
        return "met"

    added = define_tool(name="meet", execute=meet, read_only=True)
    served.server.do(lambda: served.corral.tools.register(added))
    assert client.data("{ a: meet b: meet }") == {"a": "met", "b": "met"}
    served.server.do(lambda: served.corral.tools.remove("meet"))


def test_get_is_for_queries(client: Client) -> None:
    assert client.get(query="query($d: BigInt!) { large(digits: $d) }", variables='{"d": 2}').json() == {
        "data": {"large": 100}
    }
    response = client.get(query="mutation { add(a: 1, b: 2) }")
    assert response.status_code == 405
    assert client.get("/graphql/", query="{ __typename }").json() == {"data": {"__typename": "Query"}}


def test_the_call_ends_with_its_client_and_its_execution(served: Served) -> None:
    execution = served.grant()
    client = Client(served.server.url, execution.token())
    ending = threading.Thread(target=lambda: served.waiting.started.wait(30) and served.server.do(execution.end))
    ending.start()
    response = client.send({"query": "mutation { wait }"})
    ending.join()
    assert served.waiting.was_cancelled()
    assert response.status_code == 401
    assert response.json()["errors"][0]["extensions"]["code"] == "invalid_token"


@pytest.mark.parametrize("token", [None, "x.y.z"])
def test_without_a_token_nothing_is_told(served: Served, token: str | None) -> None:
    client = Client(served.server.url, token)
    for response in (client.send({"query": "{ __schema { types { name } } }"}), client.get("/schema.graphql")):
        assert response.status_code == 401
        assert response.json()["errors"][0]["extensions"]["code"] == "invalid_token"
        assert response.headers["www-authenticate"] == "Bearer"
    assert client.get("/health").json() == {"status": "ok"}


def test_hostile_requests(client: Client) -> None:
    many = " ".join(f"a{i}: large(digits: 1)" for i in range(65))
    deep = "{ tree " + "{ x " * 40 + "}" * 41
    wide = "fragment f0 on Node { name } " + " ".join(
        f"fragment f{i} on Node {{ ...f{i - 1} ...f{i - 1} }}" for i in range(1, 40)
    )
    for query, code in [
        ("{", "malformed_message"),
        ("{ a " * 5_001, "malformed_message"),
        ("{" + " a" * 10_001 + "}", "message_too_large"),
        (f"{{ {many} }}", "message_too_large"),
        (deep, "message_too_large"),
        ("{ tree { ...f39 } } " + wide, "message_too_large"),
        ("{ tree { ...a } } fragment a on Node { ...a }", "malformed_message"),
        ("{ tree {" + " name" * 300 + "} }", "message_too_large"),
        ("query A { tree { name } } query B { tree { name } }", "malformed_message"),
        ("{ tree { nam } }", "malformed_message"),
        ("query($d: BigInt!) { large(digits: $d) }", "malformed_message"),
        ("{ large(digits: 1e400) }", "malformed_message"),
    ]:
        assert client.codes(query) == [code], query[:80]
    operation = "mutation($c: [JSON!]!) { a: _calls(calls: $c) b: _calls(calls: $c) }"
    calls = [{"sequence": n + 1, "tool": "add", "input": {"a": 1, "b": n}} for n in range(64)]
    assert client.codes(operation, c=calls) == ["message_too_large"]  # of the second field
    for body, status in [(b"{", 400), ([{"query": "{ __typename }"}], 400), ({"query": 1}, 400), ({}, 400)]:
        response = client.send(body)
        assert response.status_code == status
        assert response.json()["errors"][0]["extensions"]["code"] == "malformed_message"
    assert client.send(b"x" * 1_200_000).status_code == 413
    assert client.send(b"query=x", **{"content-type": "application/x-www-form-urlencoded"}).status_code == 415
    assert client.send({"query": "{ __typename }"}, origin="https://evil.example").status_code == 403
    assert client.send({"query": "{ __typename }"}, host="evil.example").status_code == 421
    assert client.send({"query": "{"}, accept="application/graphql-response+json").status_code == 400


def test_large_numbers_and_inputs_in_documents(client: Client) -> None:
    digits = "9" * 5_000
    for query in (
        f"{{ large(digits: {digits}) }}",
        f"{{ small(number: {digits}) }}",
    ):
        assert client.codes(query) == ["malformed_message"]
    assert client.data("{ small(number: 7) }") == {"small": 7}
    assert client.codes("{ small(number: 3000000000) }") == ["malformed_message"]
    many = " ".join(f'c{n}: callTool(name: "echo", input: $i)' for n in range(20))
    result = client.run(f"mutation($i: JSON) {{ {many} }}", i="x" * 900_000)
    assert {error["extensions"]["code"] for error in result["errors"]} == {"message_too_large"}
    assert 0 < len(result["errors"]) < 20
