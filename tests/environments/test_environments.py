"""Where people run it: each environment in which something is missing runs programs, or says in one line why not."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import pytest

from tests.forks import run_forked
from tests.surroundings import DOCKER, NO_LANDLOCK, NO_NAMESPACES, Rule, Surroundings, filtered, refused, run_in

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="jails are Linux's, so far")

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may make it without a user namespace")
# Prints what became of each attempt, an error by its text, and what was logged as a warning.
TRIED = """
import asyncio, json, logging, sys
from corral import Corral, CorralError, tool
from corral.shells import JailedShell, ShellLimits
from corral.sessions.shell import ShellLimitName
from typing import get_args
warnings = []
class Kept(logging.Handler):
    def emit(self, record):
        warnings.append(record.getMessage())
logging.getLogger("corral").addHandler(Kept(logging.WARNING))
@tool
async def double(n: int) -> int:
    "Twice."
    return 2 * n
RIGHT = {"typescript": "return await tools.double({ n: 21 })", "python": "await tools.double(n=21)"}
WRONG = {"typescript": "return await tools.double({ n: [] })", "python": "await tools.double(n=[])"}
async def program(language, check):
    async with Corral(tools=[double], check=check) as corral:
        right = await corral.execute(RIGHT[language], language=language)
        wrong = await corral.execute(WRONG[language], language=language)
    return [right.value, right.containment, wrong.error.code]
async def shell():
    async with JailedShell(limits=ShellLimits(accept_unenforced=get_args(ShellLimitName))) as shell:
        return [(await shell.run("echo out")).stdout, shell.capabilities.containment]
async def outcome(attempt):
    try:
        return await (shell() if attempt == "shell" else program(attempt.removeprefix("unchecked "), attempt in RIGHT))
    except CorralError as error:
        return f"{type(error).__name__}: {error}"
async def main():
    return {each: await outcome(each) for each in sys.argv[1:]}
print(json.dumps([asyncio.run(main()), warnings]))
"""


def tried(where: Surroundings | None, rules: list[Rule], *attempts: str) -> tuple[dict[str, Any], list[str]]:
    """Outcomes of these attempts there, under a filter of these rules, and warnings. A limit of time ends what waits."""
    command = [sys.executable, "-c", filtered(rules) + TRIED if rules else TRIED, *attempts]
    done = run_forked(command, timeout=30) if where is None else run_in(where, command)
    assert done.returncode == 0, done.stderr[-2000:]
    outcomes, warnings = json.loads(done.stdout)
    return outcomes, warnings


def test_in_docker_programs_of_both_languages_run_in_landlock_and_are_checked() -> None:
    outcomes, _ = tried(None, DOCKER, "typescript", "python", "shell")
    assert outcomes["typescript"] == [42, "landlock", "program_rejected"]
    assert outcomes["python"] == [42, "landlock", "program_rejected"]
    assert outcomes["shell"] == ["out\n", "landlock"]


@pytest.mark.parametrize(
    "error", [38, pytest.param(1, marks=pytest.mark.matrix("the gate has the other error that a filter may give"))]
)
def test_without_descriptors_of_processes_programs_need_no_jail_and_the_calls_to_allow_are_named(error: int) -> None:
    rules = refused("pidfd_open", "pidfd_send_signal", error=error)
    outcomes, warnings = tried(None, rules, "typescript", "unchecked python", "shell")
    assert outcomes["typescript"] == [42, "interpreter", "invalid_arguments"]
    assert any("WebAssembly" in each and "pidfd_open, which watches sandboxes, is refused" in each for each in warnings)
    assert outcomes["unchecked python"] == [42, "interpreter", "invalid_arguments"]
    assert "seccomp profile allows, pidfd_open and pidfd_send_signal" in outcomes["shell"]
    assert any(each.startswith("programs in Python run in Monty") for each in warnings)


@ROOT
def test_where_proc_hides_processes_the_reason_for_monty_and_the_remedy_are_said() -> None:
    outcomes, warnings = tried("hidden processes", DOCKER, "unchecked python")
    assert outcomes["unchecked python"] == [42, "interpreter", "invalid_arguments"]
    [warning] = [each for each in warnings if "Monty" in each]
    assert "does not show how the guest is contained" in warning
    assert "mount it without, or with gid=" in warning


@ROOT
def test_where_settings_are_read_only_namespaces_work_and_nest_no_further() -> None:
    outcomes, _ = tried("fixed settings", [], "unchecked typescript", "shell")
    assert outcomes["unchecked typescript"][:2] == [42, "namespaces"]
    assert outcomes["shell"] == ["out\n", "namespaces"]


def test_where_nothing_written_is_executed_typescript_is_interpreted_which_is_said() -> None:
    rules = [*refused("mmap", argument=2, bits=6), *refused("mprotect", argument=2, bits=4)]  # PROT_WRITE, PROT_EXEC
    outcomes, warnings = tried(None, rules, "unchecked typescript")
    assert outcomes["unchecked typescript"][:2] == [42, "namespaces"]
    assert any("are interpreted" in each and "MemoryDenyWriteExecute=no" in each for each in warnings)


@pytest.mark.matrix("the gate has the forking engine there; the image for wasmtime's interpreter takes a while to make")
def test_where_nothing_written_is_executed_webassembly_is_interpreted() -> None:
    rules = [*refused("mmap", argument=2, bits=6), *refused("mprotect", argument=2, bits=4)]  # PROT_WRITE, PROT_EXEC
    script = TRIED.replace("check=check)", "sandbox='wasm', check=check)")
    done = run_forked([sys.executable, "-c", filtered(rules) + script, "unchecked typescript"], timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    outcomes, _ = json.loads(done.stdout)
    assert outcomes["unchecked typescript"] == [42, "interpreter", "invalid_arguments"]


def test_with_no_jail_at_all_typescript_runs_in_webassembly_and_the_reason_is_said() -> None:
    outcomes, warnings = tried(None, [*NO_NAMESPACES, *NO_LANDLOCK], "unchecked typescript", "shell")
    assert outcomes["unchecked typescript"] == [42, "interpreter", "invalid_arguments"]
    [warning] = [each for each in warnings if each.startswith("programs in WebAssembly run without a jail")]
    assert "no containment of tier 'landlock' or better works here" in warning
    assert "the kernel has no Landlock" in warning
    assert "commands cannot be contained here" in outcomes["shell"]


def test_the_only_user_of_a_namespace_has_shells_under_a_filter_too() -> None:
    outcomes, _ = tried("one user", DOCKER, "shell")
    assert outcomes["shell"] == ["out\n", "landlock"]


@pytest.mark.matrix("the gate has a root who may become nobody else for want of users")
@ROOT
def test_a_root_without_capabilities_has_programs_and_shells() -> None:
    outcomes, _ = tried("no capabilities", [], "typescript", "python", "shell")
    assert [outcomes[each][-1] for each in ("typescript", "python")] == ["program_rejected", "program_rejected"]
    assert outcomes["shell"][0] == "out\n"


@pytest.mark.matrix("the gate has a filter that refuses a call of each start; here one of each execution")
@pytest.mark.parametrize("error", [1, 38])
def test_without_close_range_python_runs_in_namespaces(error: int) -> None:
    outcomes, _ = tried(None, refused("close_range", error=error), "unchecked python")
    assert outcomes["unchecked python"][:2] == [42, "namespaces"]


def test_where_no_thread_starts_the_runtime_that_refuses_clone3_is_named() -> None:
    outcomes, _ = tried(None, refused("clone3"), "unchecked typescript")
    assert "cannot start a thread here" in outcomes["unchecked typescript"]
    assert "clone3 with EPERM" in outcomes["unchecked typescript"]
