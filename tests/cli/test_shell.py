"""`corral shell`, `corral run --workspace` and `--sandbox`."""

from __future__ import annotations

import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from corral.cli.dispatch import run
from tests.cli.terminal import Project, Terminal
from tests.forks import CORRAL, ForkedProcess
from tests.shells.faults import served
from tests.shells.stub_e2b import StubE2B
from tests.until import LIMIT_SECONDS


def shell(directory: Path, *arguments: str) -> Terminal:
    return Terminal([CORRAL, "shell", *arguments], directory, columns=100, rows=30, env={})


def test_a_command_has_its_output_and_its_exit_code(project: Project) -> None:
    done = project.corral("shell", "-c", "echo seen; echo said >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "seen\n", "said\n")


def test_a_script_comes_from_standard_input(project: Project) -> None:
    done = project.corral("shell", input="cd /tmp\nfor i in 1 2; do\n  echo $i in $PWD\ndone\n")
    assert (done.returncode, done.stdout) == (0, "1 in /tmp\n2 in /tmp\n")


def test_the_workspace_is_a_folder_of_the_caller(project: Project) -> None:
    project.write("data/names.txt", "b\na\n")
    done = project.corral("shell", "--workspace", "data", "-c", "sort names.txt > sorted.txt; cat /etc/shadow")
    assert done.returncode == 1
    assert "No such file" in done.stderr
    assert (project.directory / "data/sorted.txt").read_text() == "a\nb\n"


def test_a_prompt_stays_in_its_folder_until_its_end(project: Project) -> None:
    with shell(project.directory) as terminal:
        terminal.until(r"sandbox:/workspace\$ ")
        terminal.press("mkdir deep; cd deep\n")
        terminal.until(r"sandbox:/workspace/deep\$ ")
        terminal.press("exit 5\n")
        assert terminal.ends() == 5
    assert "job control" not in terminal.output


def test_ctrl_c_ends_what_runs_and_not_the_prompt(project: Project) -> None:
    with shell(project.directory) as terminal:
        terminal.until(r"\$ ")
        terminal.press("echo kept > file; echo beg''un; sleep 600\n")
        terminal.until("begun")
        terminal.interrupt()
        terminal.until("interrupted: this is a new bash")
        terminal.press("cat file; exit\n")
        terminal.until("kept")
        assert terminal.ends() == 0


def test_a_prompt_without_namespaces_says_what_is_not_bounded(project: Project) -> None:
    refused = project.corral("shell", "--tier", "landlock", "-c", "true")
    assert refused.returncode == 2
    assert "does not enforce disk" in refused.stderr
    accepted = ("--tier", "landlock", "--accept-unenforced", "disk", "--accept-unenforced", "processes")
    with shell(project.directory, *accepted) as terminal:
        terminal.until("not bounded in this jail: disk")
        terminal.until(r"sandbox:/\S+\$ ")
        terminal.press("echo kept > file; echo beg''un; sleep 600\n")
        terminal.until("begun")
        terminal.interrupt()
        terminal.until("interrupted: this is a new bash")
        terminal.press("cat file; cat /etc/passwd; exit 4\n")
        terminal.until("kept")
        terminal.until("Permission denied")
        assert terminal.ends() == 4


@pytest.mark.parametrize(
    ("tier", "how", "code"),
    [
        ("namespaces", signal.SIGINT, 130),
        ("namespaces", signal.SIGKILL, -signal.SIGKILL),
        pytest.param(
            *("landlock", signal.SIGINT, 130),
            marks=pytest.mark.matrix("Ctrl-C is tried in namespaces, and without them an end that leaves no time"),
        ),
        ("landlock", signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_nothing_of_a_command_is_left_when_its_host_ends(project: Project, tier: str, how: int, code: int) -> None:
    folder = project.directory / "data"
    folder.mkdir()
    os.mkfifo(folder / "held")
    (folder / "held").chmod(0o666)
    accepted = ["--tier", tier, "--accept-unenforced", "disk", "--accept-unenforced", "processes"]
    command = "exec 3>held; trap '' TERM INT HUP; (setsid sleep 1000 &); echo there >&3; sleep 1000"
    host = ForkedProcess(
        [CORRAL, "shell", "--workspace", "data", *accepted, "-c", command],
        cwd=project.directory,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with (folder / "held").open() as held:  # reading ends once nobody has it open for writing any more
        assert held.readline() == "there\n"
        host.send_signal(how)
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(held.read).result(timeout=LIMIT_SECONDS) == ""
    assert host.wait(LIMIT_SECONDS) == code


def test_programs_of_both_languages_run_in_the_workspace(project: Project) -> None:
    folder = project.directory / "data"
    folder.mkdir()
    project.write("write.py", "open('made.txt', 'w').write('by python')")
    project.write("read.ts", "import { readFileSync } from 'fs'; return readFileSync('made.txt', 'utf8')")
    written = project.corral("run", "write.py", "--workspace", "data", "--no-check")
    read = project.corral("run", "read.ts", "--workspace", "data", "--no-check")
    assert (written.returncode, read.returncode, read.stdout) == (0, 0, "by python\n"), written.stderr + read.stderr
    assert (folder / "made.txt").read_text() == "by python"


def test_a_workspace_that_is_not_there_is_named(project: Project) -> None:
    done = project.corral("shell", "--workspace", "nowhere", "-c", "true")
    assert (done.returncode, "there is no folder nowhere" in done.stderr) == (2, True)


def test_a_program_runs_in_a_cloud_by_its_name(
    project: Project, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    stub = StubE2B()
    program = project.directory / project.write("program.py", "import os\nreturn sum(range(10))")
    with served(stub.app()) as url:
        monkeypatch.setenv("E2B_API_KEY", "e2b_" + "0" * 40)
        monkeypatch.setenv("E2B_HTTP_VERSION", "1.1")
        monkeypatch.setenv("E2B_API_URL", url)
        monkeypatch.setenv("E2B_SANDBOX_URL", url)
        monkeypatch.setenv("CORRAL_SANDBOX", "e2b")
        refused = run(["run", str(program), "--no-check"])
        accepted = ("--accept-unenforced", "cpu_seconds", "--accept-unenforced", "memory_mb")
        done = run(["run", str(program), "--no-check", *accepted])
    output = capfd.readouterr()
    assert (refused, done, output.out) == (2, 0, "45\n"), output.err
    assert "does not enforce cpu_seconds, memory_mb" in output.err
    assert not stub.left


def test_a_sandbox_by_name_has_no_engine_beside_it(project: Project) -> None:
    project.write("program.py", "return 1")
    done = project.corral("run", "program.py", "--sandbox", "e2b", "--engine", "monty")
    assert (done.returncode, "do not go with --sandbox e2b" in done.stderr) == (2, True)
    unknown = project.corral("run", "program.py", "--sandbox", "e3b")
    assert (unknown.returncode, "did you mean 'e2b'" in unknown.stderr) == (2, True), unknown.stderr
