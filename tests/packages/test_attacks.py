"""Packages that attack: the host while they are bundled, and programs of others while they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from corral import Corral
from corral.packages import NpmPackages, PackageFolder
from corral.packages.bundler import Bundle, BundleFailed, Bundler, BundleRequest
from corral.sandboxes import DenoSandbox
from tests.packages.hostile import folder_of, packages_of

pytestmark = pytest.mark.anyio


def bundled(folder: Path, tier: Any, *names: str) -> list[Bundle | BundleFailed]:
    found = PackageFolder(folder)
    return list(Bundler(found.bundler(), found.modules, tiers=[tier]).bundle([BundleRequest(name) for name in names]))


@pytest.mark.parametrize("tier", ["namespaces", "landlock", "none"])
def test_a_package_that_names_a_file_of_the_host_is_refused(tmp_path: Path, tier: Any) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the host's own")
    folder = folder_of(
        tmp_path / "packages",
        absolute=f'module.exports = require("{secret}");',
        upwards='module.exports = require("../../../secret.txt");',
        settings='module.exports = require("../../deno.json");',
        script='module.exports = require("/etc/passwd");',
        harmless="module.exports = 1;",
    )
    *refused, harmless = bundled(folder, tier, "absolute", "upwards", "settings", "script", "harmless")
    assert isinstance(harmless, Bundle)
    for each in refused:
        assert isinstance(each, BundleFailed)
    if tier == "none":  # nothing but the list of what was read keeps it out
        assert [str(each) for each in refused[:2]] == [
            "it reads '../secret.txt', which is outside its folder",
            "it reads '../secret.txt', which is outside its folder",
        ]


@pytest.mark.parametrize("tier", ["namespaces", "landlock", "none"])
def test_a_link_out_of_the_folder_is_refused(tmp_path: Path, tier: Any) -> None:
    (tmp_path / "secret.json").write_text('"the host\'s own"')
    folder = folder_of(tmp_path / "packages", linked='module.exports = require("./secret.json");')
    (folder / "node_modules" / "linked" / "secret.json").symlink_to(tmp_path / "secret.json")
    [refused] = bundled(folder, tier, "linked")
    assert isinstance(refused, BundleFailed)


async def test_a_refused_package_is_an_error_that_a_program_can_catch(tmp_path: Path) -> None:
    packages = packages_of(tmp_path, reader='module.exports = require("/etc/passwd");')
    corral = Corral(check=False, packages=packages)
    result = await corral.execute('try { require("reader") } catch (error) { return [error.code, error.message]; }')
    code, message = result.value
    assert code == "MODULE_NOT_FOUND"
    assert message.startswith('module "reader" cannot be loaded: ')
    await corral.aclose()


def test_a_package_that_requires_endlessly_many_modules_of_another_is_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, greedy="".join(f'require("other/{number}");\n' for number in range(300)))
    found = PackageFolder(folder)
    [refused] = Bundler(found.bundler(), found.modules).bundle([BundleRequest("greedy", external=("other",))])
    assert str(refused) == "it requires 300 other modules; the maximum is 200"


VANDAL = """
for (const name of ["JSON", "Promise", "Array", "Map", "Reflect", "tools", "console"]) globalThis[name] = undefined;
Object.prototype.then = function (resolve) { resolve("hijacked"); };
Array.prototype.push = () => { throw new Error("broken"); };
Function.prototype.apply = () => { throw new Error("broken"); };
require("path").join = () => "hijacked";
require("buffer").Buffer.from = () => "hijacked";
module.exports = 1;
"""


@pytest.mark.parametrize(
    "isolation",
    ["fork", pytest.param("process", marks=pytest.mark.matrix("`fork` has more in common with the next execution"))],
)
async def test_a_package_that_redefines_globals_cannot_break_the_next_execution(tmp_path: Path, isolation: Any) -> None:
    packages = packages_of(tmp_path, vandal=VANDAL)
    sandbox = DenoSandbox(isolation=isolation)
    async with Corral(check=False, sandbox=sandbox, packages=packages) as corral:
        for _ in range(2):
            await corral.execute('require("vandal"); return 1;')
            result = await corral.execute("""
import { join } from "path";
return [join("a", "b"), Buffer.from("x").toString("hex"), JSON.stringify([1].map((each) => each)), await Promise.all([2])];
""")
            assert (result.error, result.value) == (None, ["a/b", "78", "[1]", [2]])


async def test_a_package_reaches_no_module_past_the_loader(tmp_path: Path) -> None:
    packages = packages_of(
        tmp_path,
        seeker="""
module.exports = async (name) => {
  const fs = await import(name);
  return fs.readFileSync("/etc/passwd");
};
module.exports.direct = async () => (await import("node:fs")).readFileSync("/etc/passwd");
module.exports.made = () => new Function("return 1")();
""",
    )
    corral = Corral(check=False, packages=packages)
    result = await corral.execute("""
import seek from "seeker";
const said = [];
for (const attempt of [() => seek("node:fs"), () => seek("file:///etc/passwd"), () => seek.direct(), () => seek.made()]) {
  try { said.push(await attempt()); } catch (error) { said.push(error.message.slice(0, 60)); }
}
return said;
""")
    assert result.error is None
    assert result.value == [
        "(intermediate value).readFileSync is not a function",
        'module "file:///etc/passwd" is not available: programs may i',
        "(intermediate value).readFileSync is not a function",
        "Code generation from strings disallowed for this context",
    ]
    await corral.aclose()


async def test_packages_that_depend_on_each_other_share_one_copy_of_the_same_version_only(tmp_path: Path) -> None:
    folder = folder_of(
        tmp_path,
        shared="exports.Thing = class {};",
        user='exports.Thing = require("shared").Thing; exports.late = () => require("user") === exports;',
    )
    (folder / "deno.lock").write_text(
        '{"npm": {"shared@1.0.0": {}, "user@1.0.0": {"dependencies": ["shared"]}}}', encoding="utf-8"
    )
    corral = Corral(check=False, packages=NpmPackages(folder))
    result = await corral.execute("""
import * as user from "user";
import * as shared from "shared";
return [user.Thing === shared.Thing, user.late()];
""")
    assert (result.error, result.value) == (None, [True, True])
    await corral.aclose()
