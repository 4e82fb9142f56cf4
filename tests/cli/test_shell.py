"""`corral shell`, `corral run --workspace` and `--sandbox`."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest

from corral.cli.options import interruptible
from tests.cli.terminal import Here, Project, Terminal
from tests.forks import CORRAL, ForkedProcess
from tests.shells.faults import served
from tests.shells.stub_e2b import StubE2B
from tests.until import LIMIT_SECONDS, until_sync

ACCEPTED = [part for name in ("disk", "locks", "processes") for part in ("--accept-unenforced", name)]


def shell(directory: Path, *arguments: str) -> Terminal:
    return Terminal([CORRAL, "shell", *arguments], directory, columns=100, rows=30, env={})


def test_a_script_comes_from_standard_input(project: Project) -> None:
    done = project.corral("shell", input="cd /tmp\nfor i in 1 2; do\n  echo $i in $PWD\ndone\n")
    assert (done.returncode, done.stdout) == (0, "1 in /tmp\n2 in /tmp\n")


def test_a_command_has_its_output_and_its_exit_code_and_a_folder_of_the_caller(project: Project) -> None:
    project.write("data/names.txt", "b\na\n")
    command = "sort names.txt > sorted.txt; echo seen; cat /etc/shadow; echo said >&2; exit 7"
    done = project.corral("shell", "--workspace", "data", "-c", command)
    assert (done.returncode, done.stdout) == (7, "seen\n")
    refused, said = done.stderr.splitlines()
    assert "No such file" in refused
    assert said == "said"
    assert (project.directory / "data/sorted.txt").read_text() == "a\nb\n"


def test_a_prompt_stays_in_its_folder_and_ctrl_c_ends_what_runs_and_not_the_prompt(project: Project) -> None:
    with shell(project.directory) as terminal:
        terminal.until(r"sandbox:/workspace\$ ")
        terminal.press("mkdir deep; cd deep\n")
        terminal.until(r"sandbox:/workspace/deep\$ ")
        terminal.press("cd ..; echo kept > file; echo beg''un; sleep 600\n")
        terminal.until("begun")
        terminal.interrupt()
        terminal.until("interrupted: this is a new bash")
        terminal.press("cat file; exit 5\n")
        terminal.until("kept")
        assert terminal.ends() == 5
    assert "job control" not in terminal.output


@pytest.mark.matrix("test_jailed.py says what such a jail does not hold; here the prompt prints it")
def test_a_prompt_without_namespaces_says_what_is_not_bounded(project: Project) -> None:
    refused = project.corral("shell", "--tier", "landlock", "-c", "true")
    assert refused.returncode == 2
    assert "does not enforce disk" in refused.stderr
    accepted = ("--tier", "landlock", *ACCEPTED)
    with shell(project.directory, *accepted) as terminal:
        terminal.until("not limited in this jail: disk")
        terminal.until(r"sandbox:/\S+\$ ")
        terminal.press("echo kept > file; echo beg''un; sleep 600\n")
        terminal.until("begun")
        terminal.interrupt()
        terminal.until("interrupted: this is a new bash")
        terminal.press("cat file; cat /etc/passwd; exit 4\n")
        terminal.until("kept")
        terminal.until("Permission denied")
        assert terminal.ends() == 4


@pytest.mark.anyio
async def test_ctrl_c_is_heard_if_the_kernel_gives_it_to_another_thread() -> None:
    came, waits = anyio.Event(), threading.Event()

    def interrupt() -> None:
        waits.wait(LIMIT_SECONDS)
        until_sync(lambda: Path("/proc/self/stat").read_text().rpartition(")")[2].split()[0] == "S")
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    other = threading.Thread(target=interrupt)
    other.start()
    end = anyio.current_time() + LIMIT_SECONDS
    with interruptible(came.set), anyio.fail_after(LIMIT_SECONDS):
        waits.set()
        await came.wait()
    assert anyio.current_time() < end, "the loop heard of it only as its deadline woke it"
    other.join()


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
    accepted = ["--tier", tier, *ACCEPTED]
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


def test_programs_run_in_the_workspace(ready: Here) -> None:
    ready.write("data/made.txt", "by hand")
    ready.write("program.ts", "import fs from 'fs'; fs.renameSync('made.txt', 'moved.txt'); return fs.readdirSync('.')")
    done = ready.main("run", "program.ts", "--workspace", "data", "--no-check")
    assert (done.returncode, done.stdout) == (0, '[\n  "moved.txt"\n]\n'), done.stderr
    assert (ready.directory / "data/moved.txt").read_text() == "by hand"


def test_a_workspace_that_is_not_there_is_named(here: Here) -> None:
    done = here.main("shell", "--workspace", "nowhere", "-c", "true")
    assert (done.returncode, "there is no folder nowhere" in done.stderr) == (2, True)


def test_a_program_runs_in_a_cloud_by_its_name(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = StubE2B()
    here.write("program.py", "import os\nreturn sum(range(10))")
    with served(stub.app()) as url:
        monkeypatch.setenv("E2B_API_KEY", "e2b_" + "0" * 40)
        monkeypatch.setenv("E2B_HTTP_VERSION", "1.1")
        monkeypatch.setenv("E2B_API_URL", url)
        monkeypatch.setenv("E2B_SANDBOX_URL", url)
        monkeypatch.setenv("CORRAL_SANDBOX", "e2b")
        refused = here.main("run", "program.py", "--no-check")
        accepted = ("--accept-unenforced", "cpu_seconds", "--accept-unenforced", "memory_mb")
        done = here.main("run", "program.py", "--no-check", *accepted)
    assert (refused.returncode, done.returncode, done.stdout) == (2, 0, "45\n"), done.stderr
    assert "does not enforce cpu_seconds, memory_mb" in refused.stderr
    assert not stub.left


def test_a_cloud_sandbox_by_name_has_no_tier_beside_it(here: Here) -> None:
    here.write("program.py", "return 1")
    done = here.main("run", "program.py", "--sandbox", "e2b", "--tier", "landlock")
    assert (done.returncode, "cannot be used with --sandbox e2b" in done.stderr) == (2, True)
    unknown = here.main("run", "program.py", "--sandbox", "e3b")
    assert (unknown.returncode, "did you mean 'e2b'" in unknown.stderr) == (2, True), unknown.stderr
