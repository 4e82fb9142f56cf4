"""A view of a registry has the tools that a caller may call, and knows nothing of the others."""

from __future__ import annotations

import pytest

from corral import Tool, define_tool
from corral.errors import ToolDefinitionError, ToolNotFound
from corral.tools import ToolRegistry


def anything(input: object) -> object:
    return input


def named(path: str, scopes: str = "", any_scope: str = "", description: str = "") -> Tool:
    namespace, _, name = path.rpartition(".")
    return define_tool(
        name=name,
        namespace=namespace or None,
        description=description,
        scopes=scopes.split(),
        any_scope=any_scope.split(),
        execute=anything,
    )


def registry() -> ToolRegistry:
    return ToolRegistry(
        named("get_user", description="Gets a user."),
        named("get_users_secret", "admin", description="Gets the secret of a user."),
        named("billing.refund", "billing write"),
        named("billing.list", any_scope="billing auditor"),
    )


def seen(tools: ToolRegistry, *scopes: str) -> list[str]:
    return [str(name) for name in tools.visible_to(frozenset(scopes))]


@pytest.mark.parametrize(
    ("scopes", "names"),
    [
        ("", "get_user"),
        ("other", "get_user"),
        ("admin", "get_user get_users_secret"),
        ("billing", "get_user billing.list"),
        ("auditor other", "get_user billing.list"),
        ("billing write", "get_user billing.list billing.refund"),
        ("billing write admin", "get_user get_users_secret billing.list billing.refund"),
    ],
)
def test_a_view_has_what_the_scopes_allow(scopes: str, names: str) -> None:
    tools = registry()
    view = tools.visible_to(frozenset(scopes.split()))
    assert [str(name) for name in view] == names.split()
    assert len(view) == len(names.split())
    assert [str(name) for name in view.snapshot()] == [str(name) for name in view.names()]
    assert view.namespaces() == (("billing",) if "billing" in names else ())
    assert {str(name) for name in tools if view.hidden(str(name))} == {str(name) for name in tools} - {*names.split()}


def test_what_a_view_leaves_out_is_as_if_it_had_never_been() -> None:
    view = registry().visible_to(frozenset())
    bare = ToolRegistry(named("get_user", description="Gets a user."))
    asked = [
        "get_users_secret",
        "get_users_secrets",
        "secret",
        "billing.refund",
        "billing.nope",
        "billing",
        "gt_user",
        "",
    ]
    for name in asked:
        told: list[str] = []
        for tools in (view, bare):
            assert tools.get(name) is None
            assert name not in tools
            with pytest.raises(ToolNotFound) as raised:
                tools.resolve(name)
            told.append(str(raised.value))
        assert told[0] == told[1]
        assert view.near(name) == bare.near(name)
        assert [str(found) for found, _ in view.search(name).tools] == [
            str(found) for found, _ in bare.search(name).tools
        ]
        assert view.search(name).total == bare.search(name).total


def test_the_whole_registry_hides_nothing() -> None:
    assert registry().hidden("billing.refund") is None


def test_a_view_changes_with_its_registry() -> None:
    tools = registry()
    view = tools.visible_to(frozenset({"x"}))
    before = view.snapshot()
    tools.register(named("late", "x"), named("other", "y"))
    assert [str(name) for name in view] == ["get_user", "late"]
    assert [str(name) for name in before] == ["get_user"]
    tools.remove("get_user")
    assert [str(name) for name in view] == ["late"]


def test_what_changes_a_view_changes_its_registry() -> None:
    tools = registry()
    view = tools.visible_to(frozenset())
    view.register(named("added"))
    assert "added" in tools
    with pytest.raises(ToolDefinitionError, match="already"):
        view.register(named("get_users_secret"))
    with pytest.raises(ToolNotFound):
        view.remove("get_users_secret")
    copied = view.copy()
    copied.register(named("later"))
    assert "later" not in tools
    assert [str(name) for name in copied] == ["added", "get_user", "later"]


def test_callers_who_may_call_the_same_share_what_was_made_for_them() -> None:
    tools = registry()
    nobody, other = tools.visible_to(frozenset()), tools.visible_to(frozenset({"repo:7"}))
    assert nobody is not other
    assert nobody.snapshot() is other.snapshot()
    everything = tools.visible_to(frozenset({"admin", "billing", "write"}))
    assert everything.snapshot() is tools.snapshot()
    assert tools.visible_to(frozenset()) is nobody


def test_what_is_kept_for_callers_is_bounded() -> None:
    tools = ToolRegistry(*(named(f"t{number}", f"s{number}") for number in range(400)))
    for number in range(400):
        assert seen(tools, f"s{number}", f"t{number}") == [f"t{number}"]
    assert seen(tools, "s0", "s399") == ["t0", "t399"]


def test_names_are_those_of_the_registry_whoever_looks() -> None:
    tools = ToolRegistry(named("get-user"), named("get user", "admin"))
    [visible] = tools.visible_to(frozenset())
    assert visible in tools.names()
    assert tools.get(visible) is tools.visible_to(frozenset({"admin"})).get(visible)


def test_why_tools_are_missing_is_told_to_those_who_might_call_them() -> None:
    tools = registry()
    tools.exchange((), (), namespace="wiki", problem="the server is down", scopes={"wiki"})
    tools.exchange((), (), namespace="open", problem="it is closed")
    nobody, reader = tools.visible_to(frozenset()), tools.visible_to(frozenset({"wiki"}))
    assert nobody.problems == {"open": "it is closed"}
    with pytest.raises(ToolNotFound, match=r'^no tool "wiki.read"; there are: get_user$'):
        nobody.resolve("wiki.read")
    with pytest.raises(ToolNotFound, match=r'no tool "wiki.read": the server is down'):
        reader.resolve("wiki.read")
    assert nobody.snapshot() is not tools.snapshot()


def test_a_view_of_a_view_has_what_both_allow() -> None:
    both = registry().visible_to(frozenset({"billing"})).visible_to(frozenset({"auditor"}))
    assert [str(name) for name in both] == ["get_user", "billing.list"]
    assert both.hidden("get_users_secret") is not None
