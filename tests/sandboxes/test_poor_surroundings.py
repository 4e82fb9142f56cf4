"""Systems that lack features for a jail: which engines still run there, and the errors of the others."""

from __future__ import annotations

import json
import sys

import pytest

from tests.surroundings import Surroundings, guests_change_user, run_in

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="jails are Linux's, so far")

PROGRAM = """
import asyncio, json, sys
from corral import Corral, CorralError
from corral.sandboxes import CPythonSandbox, DenoSandbox
async def outcome_of(corral, language):
    try:
        result = await corral.execute("1 + 1", language=language)
        return [result.value, result.containment]
    except CorralError as error:
        return str(error)
async def main(tier):
    sandbox = "auto" if tier == "auto" else {"typescript": DenoSandbox(tier=tier), "python": CPythonSandbox(tier=tier)}
    async with Corral(sandbox=sandbox, check=False) as corral:
        return {language: await outcome_of(corral, language) for language in ("python", "typescript")}
print(json.dumps(asyncio.run(main(sys.argv[1]))))
"""


IN_A_SESSION = """
import asyncio, json
from corral import Corral
async def main():
    async with Corral(check=False) as corral, corral.session() as session:
        value = (await corral.execute("1 + 1", language="python")).value
        without_files = (await corral.execute("1")).containment
        await session.files.write_text("a", "one")
        source = "open('b', 'w').write(open('a').read() + ' two')"
        result = await session.execute(source, language="python")
        read = await session.execute("return require('fs').readFileSync('b', 'utf8')")
        return [value, without_files, result.containment, result.files.created, read.containment, read.value]
print(json.dumps(asyncio.run(main())))
"""


def outcomes(surroundings: Surroundings, tier: str) -> dict[str, object]:
    done = run_in(surroundings, [sys.executable, "-c", PROGRAM, tier])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_where_there_is_one_user_only_both_engines_run_in_landlock() -> None:
    assert outcomes("one user", "landlock") == {"typescript": [2, "landlock"], "python": [2, "landlock"]}


def test_where_deno_does_not_start_a_corral_opens_and_runs_python() -> None:
    by_language = outcomes("little address space", "auto")
    assert by_language["python"] == [2, "namespaces"]
    text = str(by_language["typescript"])
    tried = "namespaces, landlock: " if guests_change_user() else "namespaces: the engine did not start: status 127 "
    assert text.startswith(f"no containment of tier 'landlock' or better works here. {tried}")
    assert "Fatal process out of memory" in text
    assert "limited to 2048 MB here, and engines reserve far more: ulimit -v unlimited" in text
    assert "pip install 'corral[monty,wasm]'" in text


def test_without_proc_programs_run_in_interpreters_and_sessions_have_files_for_both() -> None:
    done = run_in("no /proc", [sys.executable, "-c", IN_A_SESSION])
    assert done.returncode == 0, done.stderr
    value, without_files, *in_session = json.loads(done.stdout)
    assert (value, without_files) == (2, "interpreter")  # the second in TypeScript
    assert in_session == ["interpreter", ["/workspace/b"], "interpreter", "one two"]
