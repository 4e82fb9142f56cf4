"""Skills in both languages, in a real jail, and folders that are not to become skills."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from corral import ConfigError, Corral, ExecutionContext, Skill
from corral.packages import NpmPackages
from corral.sandboxes import CPythonSandbox, DenoSandbox, SandboxProvider
from corral.sessions import Sessions
from corral.types import Language
from tests.foreign import PACKAGES

pytestmark = pytest.mark.anyio

FRONT = "---\nname: report\ndescription: Writes reports.\n---\nUse `total`.\n"
TYPESCRIPT = """
import { total } from "FROM/report/helpers/sums.mjs";
return total([1, 2, 3]);
"""


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(
        tmp_path_factory.mktemp("skills") / "any",
        {
            "SKILL.md": FRONT,
            "helpers/sums.mjs": 'import { sumBy } from "lodash";\nimport { one } from "./one.ts";\n'
            "export const total = (all) => sumBy(all, (each) => each * one());\n",
            "helpers/one.ts": "export function one(): number { return 1 as number; }\n",
            "helpers/sums.py": "def total(all):\n    return sum(all)\n",
            "helpers/hostile.mjs": 'module.exports = require("/etc/passwd");\n',
            "helpers/json.mjs": 'import x from "/etc/host.conf" with { type: "text" };\nexport default x;\n',
            "helpers/above.mjs": 'import x from "../../../../deno.json";\nexport default x;\n',
        },
    )


IN_WASM = pytest.param("wasm", marks=pytest.mark.matrix("the same loader of modules and rules of files in WebAssembly"))


@pytest.fixture(scope="module", params=["deno", IN_WASM])
async def corral(report: Path, request: pytest.FixtureRequest) -> AsyncIterator[Corral]:
    sandbox: dict[Language, str | SandboxProvider] = {"python": CPythonSandbox(), "typescript": request.param}
    async with Corral(sandbox=sandbox, packages=NpmPackages(PACKAGES), skills=[report]) as opened:
        yield opened


@pytest.mark.parametrize(
    "tier",
    [
        "namespaces",
        pytest.param("landlock", marks=pytest.mark.matrix("the same folders are seen in namespaces")),
        IN_WASM,
    ],
)
async def test_programs_of_callers_with_a_session_have_skills_and_models_hear_of_them(
    report: Path, tier: Literal["namespaces", "landlock", "wasm"]
) -> None:
    sandbox: dict[Language, str | SandboxProvider] = {
        "python": CPythonSandbox(tier="namespaces" if tier == "wasm" else tier),
        "typescript": "wasm" if tier == "wasm" else DenoSandbox(tier=tier),
    }
    caller = ExecutionContext(user_id="ann", session_id="s")
    async with Corral(
        sandbox=sandbox, packages=NpmPackages(PACKAGES), skills=[report], sessions=Sessions(), check=False
    ) as corral:
        assert "- report, /root/skills/report: Writes reports." in corral.model.tools()[0].description
        imported = await corral.execute(
            "from skills.report.helpers.sums import total\n"
            "return total([1, 2]), open('/root/skills/report/SKILL.md').read()[-6:]",
            language="python",
            context=caller,
        )
        assert (imported.value, imported.error) == ([3, "otal`.\n"[-6:]], None)
        read = await corral.execute(
            'import fs from "fs"; import { total } from "/root/skills/report/helpers/sums.mjs"; '
            'return [total([1, 2]), fs.existsSync("/root/skills/report/SKILL.md")];',
            context=caller,
        )
        assert (read.value, read.error) == ([3, True], None)
        written = await corral.execute("open('/root/skills/report/x', 'w')", language="python", context=caller)
        assert written.error is not None
        assert "'/root/skills/report/x'" in written.error.message
        writes = 'import fs from "fs"; fs.writeFileSync("/root/skills/report/x", "")'
        written = await corral.execute(writes, context=caller)
        assert written.error is not None
        assert written.error.message.startswith("EACCES: permission denied, open '/")
        assert "skills/report/x'" in written.error.message


async def value(run: Callable[..., Any], source: str, language: str) -> Any:
    result = await run(source, language=language)
    result.raise_for_error()
    return result.value


@pytest.mark.parametrize("place", ["skills", "/root/skills"])
async def test_typescript_imports_a_module_with_a_package_and_one_of_its_own(corral: Corral, place: str) -> None:
    assert await value(corral.execute, TYPESCRIPT.replace("FROM", place), "typescript") == 6


@pytest.mark.matrix(
    "the gate tests errors of unknown packages; those of skills, without packages, outside of a session and in one"
)
async def test_without_a_bundler_an_import_of_a_skill_names_the_option_that_brings_one(report: Path) -> None:
    async with Corral(skills=[report], check=False) as corral, corral.session() as session:
        for run, place in ((corral.execute, "skills"), (session.execute, "/root/skills")):
            error = (await run(TYPESCRIPT.replace("FROM", place))).error
            assert error is not None
            assert f'module "{place}/report/helpers/sums.mjs" is not available' in error.message
            assert "packages=NpmPackages(...)" in error.message
        error = (await session.execute('return require("lodash");')).error
        assert error is not None
        assert "programs may import parts of node such as" in error.message


async def test_a_session_has_the_folder_for_both_languages(corral: Corral) -> None:
    async with corral.session() as session:
        assert await value(session.execute, TYPESCRIPT.replace("FROM", "skills"), "typescript") == 6
        python = "from skills.report.helpers.sums import total\nreturn total([1, 2, 3])"
        assert await value(session.execute, python, "python") == 6
        assert await value(session.execute, "return open('/root/skills/report/SKILL.md').read()", "python") == FRONT
        reads = 'import fs from "fs"; return fs.readFileSync("/root/skills/report/SKILL.md", "utf8");'
        assert await value(session.execute, reads, "typescript") == FRONT
        written = await session.execute("open('/root/skills/report/x', 'w')", language="python")
        assert written.error is not None


async def test_a_session_adds_skills_and_hides_no_module(corral: Corral, tmp_path: Path) -> None:
    files = {"SKILL.md": FRONT.replace("report", "json"), "loads.py": "x = 1\n", "x.mjs": "export const x = 2;\n"}
    async with corral.session(skills=[Skill(write(tmp_path, files))]) as session:
        python = "import json\nfrom skills.json.loads import x\nreturn [json.loads('[3]'), x]"
        assert await value(session.execute, python, "python") == [[3], 1]
        assert await value(session.execute, 'import { x } from "skills/json/x.mjs"; return x;', "typescript") == 2
        assert await value(session.execute, TYPESCRIPT.replace("FROM", "skills"), "typescript") == 6
    outside = await corral.execute('import { x } from "skills/json/x.mjs"; return x;')
    assert outside.error is not None


@pytest.mark.parametrize("module", ["hostile", "json", "above"])
async def test_nothing_outside_of_skills_gets_into_a_module(corral: Corral, module: str) -> None:
    result = await corral.execute(f'const x = require("skills/report/helpers/{module}.mjs"); return x;')
    assert result.error is not None
    assert f'"skills/report/helpers/{module}.mjs" cannot be loaded' in result.error.message


@pytest.mark.parametrize("specifier", ["skills/report/../../deno.json", "skills/other/x.mjs", "skills/../x.mjs"])
async def test_other_places_are_no_modules(corral: Corral, specifier: str) -> None:
    result = await corral.execute(f'return require("{specifier}");')
    assert result.error is not None
    assert "is not available" in result.error.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no front matter", "has no front matter"),
        ("---\nname: a\n", "has no front matter"),
        ("---\nname: ../up\ndescription: x\n---\n", "is not the name of a skill"),
        ("---\nname: a\n---\n", "description"),
        ("---\nname: a\ndescription: " + "x" * 2000 + "\n---\n", "2000 characters"),
        ("---\nname: a\nwhat\n---\n", "SKILL.md:3"),
        ("x" * 10_000_000, "too large"),
    ],
)
def test_a_malformed_skill_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Skill(write(tmp_path, {"SKILL.md": text}))


def test_a_description_may_go_on_in_further_lines(tmp_path: Path) -> None:
    skill = Skill(write(tmp_path, {"SKILL.md": '---\nname: "a"\ndescription: >\n  one\n  two\nother: x\n---\n'}))
    assert (skill.name, skill.description, skill.path) == ("a", "one two", "/root/skills/a")


def test_links_are_refused(tmp_path: Path) -> None:
    for number, (name, target) in enumerate(
        {"x.txt": "/etc/passwd", "folder": "/etc", "SKILL.md": "/etc/passwd"}.items()
    ):
        folder = write(tmp_path / str(number), {"SKILL.md": FRONT})
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)
        with pytest.raises(ConfigError, match="symbolic link"):
            Skill(folder)


def test_a_folder_without_text_and_two_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no .*SKILL\.md"):
        Corral(skills=[tmp_path])
    folders = [write(tmp_path / name, {"SKILL.md": FRONT}) for name in ("a", "b")]
    with pytest.raises(ConfigError, match="two skills are named 'report'"):
        Corral(skills=folders)
