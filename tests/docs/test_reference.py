"""The reference is that of the source as it is, and every public name says what it is."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
from docs_src.reference import FOLDER, documented, pages
from docs_src.reference.names import MODULES
from hatch_build import ReadmeHook

import corral
from tests.docs.markdown import ROOT

HOW_TO = "scripts/reference writes it anew"


of_check = pytest.mark.matrix("`scripts/check` runs it each time; here once more with all tests")


@of_check
def test_the_reference_is_up_to_date() -> None:
    written = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}
    made = pages()
    assert sorted(written) == sorted(made), HOW_TO
    for name, text in made.items():
        assert written[name] == text, f"{name}: {HOW_TO}"


@of_check
def test_every_public_name_and_method_has_a_docstring() -> None:
    found = documented()
    assert {each.name for each in found} >= {*corral.__all__}
    assert [each.title for each in found if each.docstring is None] == []


def test_every_module_that_an_extra_brings_is_in_the_reference() -> None:
    named = {
        f"corral.{path.relative_to(ROOT / 'src/corral').with_suffix('').as_posix().replace('/', '.')}"
        for path in (ROOT / "src/corral/integrations").glob("*.py")
        if "requires_extra(" in path.read_text(encoding="utf-8") and not path.stem.endswith(("_own", "_tools"))
    }
    assert named
    assert named <= {*MODULES}


def test_links_of_the_readme_are_whole_on_a_package_index() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    metadata: dict[str, Any] = {"urls": project["urls"]}
    ReadmeHook(str(ROOT), {}).update(metadata)
    links: list[str] = re.findall(r"(?:\]\(|src(?:set)?=\")([^)\"\s]+)[)\"]", metadata["readme"]["text"])
    files = [re.sub(f"^{re.escape(project['urls']['Repository'])}/(?:blob|raw)/main/", "", link) for link in links]
    assert len(files) > 30
    for link, file in zip(links, files, strict=True):
        assert file != link, link
        assert (ROOT / file.partition("#")[0]).exists(), link
