"""GraphiQL in a real Chromium, from packages of npm."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from corral import Corral, ExecutionContext, tool
from corral.errors import ConfigError
from corral.protocols.graphql.bridge import GraphqlBridge
from tests.bridges.http.serving import NO_TLS, Server
from tests.chromium import chromium, watched
from tests.foreign import graphiql_packages

HOSTILE = "<img src=x onerror='document.title=1'><script>document.title=2</script>"


@tool(read_only=True, description=f"Doubles. {HOSTILE}")
async def double(number: float) -> float:
    return 2 * number


@tool(stream=True, read_only=True)
async def count(to: int) -> AsyncIterator[str]:
    """Counts."""
    for number in range(to):
        yield f"number {number} {HOSTILE}"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return graphiql_packages(tmp_path_factory.mktemp("node_modules"))


def run(page: Page, document: str) -> None:
    page.locator(".graphiql-query-editor .CodeMirror").click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(document)
    page.keyboard.press("Control+Enter")


def test_operations_run_with_the_token_that_is_typed_and_nothing_of_a_tool_is_interpreted(packages: Path) -> None:
    corral = Corral([double, count], check=False)
    with Server(corral.remote.asgi_app(GraphqlBridge(graphiql=packages))) as server, chromium() as browser:
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        problems = watched(page)
        page.goto(f"{server.url}/graphiql")
        with corral.remote.grant(ExecutionContext(user_id="ann")) as execution:
            page.get_by_label("Token").fill(execution.token())
            page.get_by_role("button", name="Use").click()
            result = page.locator(".result-window")
            run(page, "{ double(number: 21) }")
            expect(result).to_contain_text('"double": 42')
            run(page, "subscription { count(to: 3) }")
            expect(result).to_contain_text("number 2 <img")
            page.get_by_role("button", name="Documentation Explorer").click()
            page.get_by_role("link", name="Query", exact=True).click()
            expect(page.locator(".graphiql-doc-explorer")).to_contain_text("Doubles. <img")
        assert page.title() == "GraphiQL"
        # Before the token, the schema was refused.
        assert [each for each in problems if "401" not in each] == []
        assert page.evaluate("Object.values(localStorage).join()").find(execution.token()) == -1


def test_the_page_is_an_option_and_only_its_files_are_served(packages: Path) -> None:
    corral = Corral([double], check=False)
    with Server(corral.remote.asgi_app(GraphqlBridge())) as server:
        assert httpx.get(f"{server.url}/graphiql", timeout=30, verify=NO_TLS).status_code == 404
    with Server(corral.remote.asgi_app(GraphqlBridge(graphiql=packages))) as server:
        page = httpx.get(f"{server.url}/graphiql", timeout=30, verify=NO_TLS)
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert page.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; ")
        for path in ("package.json", "../graphiql/package.json", "..%2fpackage.json", "react", ""):
            assert httpx.get(f"{server.url}/graphiql/{path}", timeout=30, verify=NO_TLS).status_code == 404
        assert (
            httpx.get(f"{server.url}/graphiql", headers={"host": "evil.example"}, timeout=30, verify=NO_TLS).status_code
            == 421
        )
        asked = {"query": "{ __typename }"}
        for origin, status in (("https://evil.example", 403), (server.url, 401)):
            assert (
                httpx.post(server.url, json=asked, headers={"origin": origin}, timeout=30, verify=NO_TLS).status_code
                == status
            )


def test_a_folder_without_the_packages_is_refused_with_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"react\.production\.min\.js cannot be read .*npm install graphiql@3 react@18"
    ):
        GraphqlBridge(graphiql=tmp_path)
