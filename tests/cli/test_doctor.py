"""`corral doctor`: on this machine, and in surroundings that lack something by the kernel's own means."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from corral.doctor.escape_probe import ATTEMPTS
from tests.cli.terminal import Here, Project, corral_after
from tests.forks import run_forked
from tests.surroundings import NO_LANDLOCK, NO_NAMESPACES, Rule, Surroundings, filtered, guests_change_user, run_in

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="jails are Linux's, so far")

# In a user namespace of its own, in which no more of them may be made; see user_namespaces(7).
FORBIDDEN = """
import ctypes, os, sys
from pathlib import Path
root = os.geteuid() == 0
user, group = os.geteuid(), os.getegid()
ready, mapped = os.pipe(), os.pipe()
if child := os.fork():
    os.read(ready[0], 1)
    if root:
        Path(f"/proc/{child}/uid_map").write_text("0 0 65536")
        Path(f"/proc/{child}/gid_map").write_text("0 0 65536")
    else:
        Path(f"/proc/{child}/setgroups").write_text("deny")
        Path(f"/proc/{child}/uid_map").write_text(f"{user} {user} 1")
        Path(f"/proc/{child}/gid_map").write_text(f"{group} {group} 1")
    os.write(mapped[1], b"x")
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
assert ctypes.CDLL(None).unshare(0x10000000) == 0
os.write(ready[1], b"x")
os.read(mapped[0], 1)
Path("/proc/sys/user/max_user_namespaces").write_text("0")
"""
REPORTED = pytest.mark.matrix(
    "the gate has reports without /proc and without room for files; here something else is scarce"
)


def doctor(preparation: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """`corral doctor` in a process that prepares itself."""
    return run_forked(corral_after(preparation, "doctor", *arguments), env=os.environ | env)


def doctor_under(rules: list[Rule], *arguments: str) -> subprocess.CompletedProcess[str]:
    """`corral doctor` under a filter."""
    return doctor(filtered(rules), *arguments)


def layers(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {layer["name"]: layer for layer in found["layers"]}


def test_a_machine_with_everything_is_healthy(project: Project) -> None:
    done = project.corral("doctor", "--containment", "namespaces")
    assert (done.stderr, done.returncode) == ("", 0)
    lines = done.stdout.splitlines()
    assert lines[-1] == "✓ Programs run in tier namespaces; namespaces is required."
    crossed = [" ".join(line.split()[1:3]) for line in lines if "✗" in line]
    assert crossed == ([] if guests_change_user() else ["unprivileged user"])
    assert [line.split()[1:] for line in lines if line.endswith("refused")][:2] == [
        ["read", "file", "refused", "refused"],
        ["list", "directory", "refused", "refused"],
    ]
    assert "  ✓ see file          refused         open by design" in lines
    servers = lines[lines.index("Language servers, which check programs") + 1 :]
    assert [line.split()[:2] for line in servers if line.startswith("  ✓")] == [["✓", "typescript"], ["✓", "python"]]


@pytest.mark.matrix("tests/doctor has the report that this prints as JSON")
def test_json_has_all_that_was_found_and_a_language_server_that_is_not_there_is_no_failure(project: Project) -> None:
    done = project.corral_without_ty("doctor", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0
    assert found.keys() == {
        "healthy", "required_tier", "system", "tier", "reason", "python", "layers", "verdicts", "attempts", "pool_size",
        "language_servers", "python_reason", "typescript",
        "properties",
    }  # fmt: skip
    assert (found["healthy"], found["required_tier"], found["tier"]) == (True, "landlock", "namespaces")
    assert all(layer.keys() == {"name", "in_force", "detail", "remedy"} for layer in found["layers"])
    assert layers(found)["sessions"]["detail"] == "files in memory, with exact quotas"
    assert all(verdict.keys() == {"tier", "works", "detail"} for verdict in found["verdicts"])
    assert all(attempt.keys() == {"tier", "name", "outcome", "detail"} for attempt in found["attempts"])
    assert len(found["attempts"]) == 2 * len(ATTEMPTS)
    servers = {server["language"]: server for server in found["language_servers"]}
    assert servers.keys() == {"typescript", "python"}
    for server in servers.values():
        assert server.keys() == {
            "language", "name", "version", "path", "ready", "checks", "tier", "ready_seconds", "memory_mb", "reason",
            "remedy",
        }  # fmt: skip
    ready, missing = servers["typescript"], servers["python"]
    assert (ready["ready"], ready["checks"], ready["tier"], ready["reason"]) == (True, True, "namespaces", None)
    assert ready["ready_seconds"] > 0
    assert 1 < ready["memory_mb"] < 1_000
    assert Path(ready["path"]).is_file()
    assert ready["version"][0].isdigit()
    assert (missing["name"], missing["ready"], missing["reason"]) == (None, False, "not installed")
    assert missing["remedy"] == "pip install ty"


@pytest.mark.matrix("tests/doctor tries a machine without namespaces; the command there")
def test_under_a_filter_that_forbids_namespaces_landlock_holds_which_may_not_be_enough_and_the_remedy_is_said() -> None:
    done = doctor_under(NO_NAMESPACES, "--json", "--containment", "namespaces")
    found = json.loads(done.stdout)
    assert (found["tier"], found["healthy"], done.returncode) == ("landlock", False, 1)
    assert layers(found)["sessions"]["detail"] == "files on disk, with quotas checked periodically"
    assert not layers(found)["user namespaces"]["in_force"]
    assert "container runtime" in layers(found)["user namespaces"]["detail"]
    assert "--security-opt" in layers(found)["user namespaces"]["remedy"]
    assert {attempt["tier"] for attempt in found["attempts"]} == {"landlock"}
    assert {server["tier"] for server in found["language_servers"]} == {"landlock"}
    assert [server["checks"] for server in found["language_servers"]] == [True, True]
    assert (found["python"], found["python_reason"]) == ("landlock", None)


@pytest.mark.matrix("the gate hides Landlock together with namespaces; here namespaces are left")
def test_where_landlock_is_hidden_namespaces_hold() -> None:
    done = doctor_under(NO_LANDLOCK, "--json")
    found = json.loads(done.stdout)
    assert (found["tier"], done.returncode) == ("namespaces", 0)
    assert not layers(found)["Landlock"]["in_force"]
    assert {attempt["tier"] for attempt in found["attempts"]} == {"namespaces"}


@pytest.mark.matrix("test_report examines a machine without any jail; here the command prints it")
def test_with_neither_no_program_is_contained() -> None:
    done = doctor_under([*NO_NAMESPACES, *NO_LANDLOCK])
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert "✗ Programs run in tier none, below the required landlock." in lines
    assert "✓ Programs in Python run in a memory-safe interpreter, not jailed: no containment of tier" in done.stdout
    refused = next(place for place, line in enumerate(lines) if line.startswith("  ✗ user namespaces"))
    assert "help: " in "".join(lines[refused : refused + 3])
    assert "tried" not in done.stdout
    assert "in tier none" in done.stdout


@pytest.mark.matrix("in the gate a filter refuses namespaces; here a setting does")
def test_where_no_user_namespaces_may_be_made_the_setting_is_named() -> None:
    done = doctor(FORBIDDEN, "--json")
    found = json.loads(done.stdout)
    assert (found["tier"], found["healthy"], done.returncode) == ("landlock", True, 0)
    assert layers(found)["user namespaces"]["detail"] == "user.max_user_namespaces is 0"
    assert "sysctl -w user.max_user_namespaces" in layers(found)["user namespaces"]["remedy"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has guests of another user, who may be kept out by paths")
@pytest.mark.matrix("tests/doctor has the report; guests of another user and a closed folder")
def test_what_another_user_cannot_reach_leaves_roots_own_and_is_said(tmp_path: Path) -> None:
    closed = tmp_path / "c"  # the path of a socket below it has 108 characters at most
    closed.mkdir(mode=0o700)
    done = doctor("", "--json", TMPDIR=str(closed))
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert (found["tier"], found["healthy"]) == ("namespaces", True)
    assert found["verdicts"][0] == {"tier": "namespaces", "works": True, "detail": "guests run as user 0"}
    assert not layers(found)["unprivileged user"]["in_force"]
    assert "another user than root" in layers(found)["unprivileged user"]["remedy"]
    assert list(closed.iterdir()) == []


def test_without_a_place_for_temporary_files_there_is_a_report_that_says_so() -> None:
    done = doctor("import tempfile\ntempfile.tempdir = '/nonexistent'")
    assert done.returncode == 1
    text = " ".join(done.stdout.split())
    assert "namespaces cannot create the targets of the attempts" in text
    assert "No program in TypeScript runs here: cannot write the guest's code to a temporary directory" in text
    assert "✓ Programs in Python run in a memory-safe interpreter, not jailed: cannot write the guest's code" in text


@pytest.mark.matrix("test_report has the exit code then; here the command prints those attempts")
def test_attempts_that_get_through_make_it_fail() -> None:
    unjailed = "from functools import partial\nfrom corral.cli.commands import doctor\n"
    unjailed += "doctor.examine = partial(doctor.examine, ('none',))"
    done = doctor(unjailed, "--containment", "none")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-2:] == [
        "✓ Programs run in tier namespaces; none is required.",
        f"✗ {len(ATTEMPTS)} attempts got through or could not be made.",
    ]
    assert "    connect tcp, none, got through: the listener was reached" in done.stdout.splitlines()


def test_wrong_arguments_are_wrong_usage_and_help_says_what_the_exit_codes_mean(here: Here) -> None:
    for arguments in (["--containment", "total"], ["--verbose"], ["here"]):
        done = here.main("doctor", *arguments)
        assert (done.stdout, done.returncode) == ("", 2)
        error, help = done.stderr.splitlines()
        assert error.startswith("error: ")
        assert help == "help: corral doctor --help lists the options"
    assert "exit codes: 0 " in here.main("doctor", "--help").stdout


@pytest.mark.parametrize(
    ("surroundings", "status", "last", "said"),
    [
        pytest.param(
            *("one user", 0, "✓ Programs run in tier namespaces; landlock is required.", "guests run as user 0"),
            marks=REPORTED,
        ),
        pytest.param(
            *("little address space", 1, "✓ Programs in Python run in tier namespaces.", "limited to 2048 MB"),
            marks=REPORTED,
        ),
        ("no /proc", 1, "✓ Programs in Python run in a memory-safe interpreter, not jailed: ", "there is no /proc"),
        (
            "no room for temporary files",
            1,
            "✓ Programs in Python run in a memory-safe interpreter, not jailed: ",
            "No space left",
        ),
    ],
)
@pytest.mark.matrix("tests/environments runs programs in poor surroundings; a report there")
def test_poor_surroundings_get_a_report_too(
    surroundings: Surroundings, status: int, last: str, said: str, tmp_path: Path
) -> None:
    done = run_in(surroundings, corral_after("", "doctor"), TMPDIR=str(tmp_path))
    assert "Traceback" not in done.stdout + done.stderr
    assert done.returncode == status
    assert last in done.stdout
    assert said in " ".join(done.stdout.split())
