"""The documentation's site is complete, has no dead link, and can be read in a real browser."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from docs_src.site import ROOT, Problem, build, publish, stage
from playwright.sync_api import Browser, Page, expect

from tests.chromium import chromium, watched
from tests.foreign import npm_folder

GROUPS = ["Start", "Agents", "Tools", "Running safely", "Operating", "Reference"]
_ADDRESS = re.compile(r"""(?:src|href)=["']?(?:https?:)?//([^/"'>\s]+)""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("site") / "build")


def test_every_page_is_in_a_group_and_no_link_leads_to_a_missing_file(tmp_path: Path) -> None:
    prepared = stage(tmp_path)
    pages = {*(ROOT / "docs").rglob("*.md")}
    assert len(pages) > 100
    assert pages <= {*prepared.paths}
    assert len({*prepared.paths.values()}) == len(prepared.paths)
    assert [group.title for group in prepared.groups] == GROUPS


@pytest.mark.matrix("the gate prepares all pages, and builds small sites; the whole site, which scripts/check builds")
def test_the_site_builds_strictly_with_every_page_and_its_markdown(site: Path) -> None:
    docs = ROOT / "docs"
    pages = [page.relative_to(docs) for page in docs.rglob("*.md") if page.name != "README.md"]
    assert len(pages) > 100
    assert [page for page in pages if not (site / page.with_suffix("") / "index.html").exists()] == []
    assert [page for page in pages if not (site / page).exists()] == []


@pytest.mark.matrix("the gate prepares all pages, and builds small sites; the whole site, which scripts/check builds")
def test_llms_txt_names_every_page_with_a_sentence(site: Path) -> None:
    lines = [line for line in (site / "llms.txt").read_text("utf-8").splitlines() if line.startswith("- ")]
    paths = [re.findall(r"\]\(https://[^)]*/docs/([^)]+)\)", line)[0] for line in lines]
    assert {path for path in paths if not (site / path).exists()} == set()
    assert len(paths) == len({*paths}) > 100
    assert [line for line in lines if not re.search(r"\): \S+ \S+", line)] == []


@pytest.mark.matrix("the gate prepares all pages, and builds small sites; the whole site, which scripts/check builds")
def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    loads = re.compile(r"<(?:script|link|img|source|iframe)\b[^>]*>")
    own = {"example.org"}  # the address of the site itself, in links to its canonical pages
    hosts = {
        (page.name, host)
        for page in site.rglob("*.html")
        for element in loads.findall(page.read_text("utf-8"))
        for host in _ADDRESS.findall(element)
        if host not in own
    }
    assert hosts == set()


def repository(folder: Path, index: str, **pages: str) -> Path:
    """A small repository with documentation."""
    docs = folder / "repository" / "docs"
    docs.mkdir(parents=True)
    (docs.parent / "README.md").write_text("# Home\n", encoding="utf-8")
    (docs / "README.md").write_text(f"# Documentation\n\n## Start\n\n| | |\n|---|---|\n{index}\n", encoding="utf-8")
    for name, text in pages.items():
        (docs / f"{name}.md").write_text(f"# {name}\n\n{text}\n", encoding="utf-8")
    return docs.parent


@pytest.mark.parametrize(
    ("index", "text", "problem"),
    [
        ("| [A](a.md) | |", "A page.", "b.md: is in no group"),
        ("| [A](a.md), [B](b.md), [A](a.md) | |", "A page.", "a.md: is in 2 groups"),
        ("| [A](a.md), [B](b.md), [C](c.md) | |", "A page.", "c.md: does not exist"),
        ("| [A](a.md), [B](b.md) | |", "[C](c.md)", "a.md: links to c.md, which does not exist"),
        ("| [A](a.md), [B](b.md) | |", "[B](b.md#c)", "anchor does not exist"),
    ],
)
def test_pages_in_no_group_and_dead_links_fail_the_build(index: str, text: str, problem: str, tmp_path: Path) -> None:
    root = repository(tmp_path, index, a=text, b="Another page.")
    with pytest.raises(Problem, match=re.escape(problem)):
        build(tmp_path / "build", root)


def test_links_to_files_outside_of_the_site_lead_to_the_repository(tmp_path: Path) -> None:
    root = repository(tmp_path, "| [A](a.md) | |", a="[code](../src/a.py), [B](../README.md), [here](#a)")
    (root / "src").mkdir()
    (root / "src" / "a.py").touch()
    site = stage(tmp_path / "build", root)
    text = site.text(root / "docs" / "a.md")
    assert "[code](https://example.org/corral/blob/main/src/a.py), [B](index.md), [here](#a)" in text


def test_tabs_are_written_so_that_github_shows_all_of_them(tmp_path: Path) -> None:
    tabs = "<!-- tabs -->\n<!-- tab: One -->\n```sh\nls\n```\n<!-- tab: Two -->\ntwo\n<!-- end of tabs -->"
    root = repository(tmp_path, "| [A](a.md) | |", a=tabs)
    stage(tmp_path / "build", root)
    prepared = (tmp_path / "build" / "docs" / "a.md").read_text("utf-8")
    assert '=== "One"\n\n    ```sh\n    ls\n    ```\n\n=== "Two"\n\n    two\n' in prepared


# --- in a browser


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not printed."""


@pytest.fixture(scope="module")
def address(site: Path) -> Generator[str]:
    with served(site) as address:
        yield address


@contextmanager
def served(folder: Path) -> Generator[str]:
    """Serves a folder on loopback, and yields its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    with chromium() as browser:
        yield browser


MOST_BYTES = 500_000
MOST_INDEX_BYTES = 1_200_000
_LOADED = """performance.getEntriesByType('resource')
    .filter((each) => !each.name.endsWith('/search.json'))
    .reduce((sum, each) => sum + each.encodedBodySize, 0)"""
"""Bytes that a page loads, uncompressed, but for the search's index, which grows with the pages."""
SEEN = ["", "quickstart/", "limits/", "benchmarks/", "reference/corral/"]


@pytest.mark.matrix(
    "the gate builds the site strictly; its pages in a browser, on two widths and in two colour schemes"
)
@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 1440), ("light", 390), ("dark", 390)])
def test_pages_fit_the_screen_and_pass_the_rules_of_accessibility(
    browser: Browser, address: str, scheme: Any, width: int
) -> None:
    with browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme) as context:
        page = context.new_page()
        problems = watched(page)
        for path in SEEN:
            page.goto(address + path)
            expect(page.locator("h1")).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), path
            assert _violations(page) == [], path
            assert page.evaluate(_LOADED) < MOST_BYTES, path
        assert problems == []


def _violations(page: Page) -> list[str]:
    page.add_script_tag(path=npm_folder("axe-core") / "axe.min.js")
    report = page.evaluate("axe.run({ runOnly: ['wcag2a', 'wcag2aa'] })")
    return [f"{rule['id']}: {node['html']}" for rule in report["violations"] for node in rule["nodes"]]


@pytest.mark.matrix("the gate prepares all pages; two published versions of the whole site in a browser")
def test_a_published_site_has_a_menu_of_versions(browser: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "published"
    built = build(tmp_path / "build", versions=True)
    version = publish(built, folder).name
    (folder / version).rename(folder / "0.0")
    (folder / "versions.json").write_text(json.dumps([{"version": "0.0", "title": "0.0", "aliases": ["latest"]}]))
    assert publish(built, folder) == folder / version
    with pytest.raises(Problem, match=r"has files, but no versions\.json"):
        publish(built, tmp_path)
    with served(folder) as address, browser.new_context(viewport={"width": 1440, "height": 800}) as context:
        page = context.new_page()
        page.goto(address)
        expect(page).to_have_url(f"{address}{version}/")
        expect(page.locator(".md-version__current")).to_have_text(version)
        page.locator(".md-version").hover()
        page.get_by_role("link", name="0.0", exact=True).click()
        expect(page).to_have_url(re.compile(re.escape(f"{address}0.0/")))
        expect(page.locator(".md-version__current")).to_have_text("0.0")


@pytest.mark.matrix("the gate builds the site strictly; its search and its copy buttons need a browser")
def test_the_search_finds_a_page_and_buttons_copy_code(browser: Browser, address: str, site: Path) -> None:
    assert (site / "search.json").stat().st_size < MOST_INDEX_BYTES
    with browser.new_context(viewport={"width": 1440, "height": 800}) as context:
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = context.new_page()
        page.goto(f"{address}quickstart/")
        page.locator("button.md-clipboard, .md-code__button").first.click()
        assert "pip install corral" in page.evaluate("navigator.clipboard.readText()")
        page.keyboard.press("Control+k")
        page.keyboard.type("wall_seconds")
        expect(page.get_by_role("option", name="Limits").first).to_be_visible()
        page.keyboard.press("Control+a")
        page.keyboard.type("SqliteLedger.claim")
        expect(page.get_by_role("option", name="Class SqliteLedger")).to_be_visible()
