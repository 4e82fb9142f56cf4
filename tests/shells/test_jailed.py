"""Commands in a jail: sessions that programs and commands share, bounds, and attempts to get out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import anyio
import pytest

import corral
from corral import Corral, Directory, Mount, Scratch
from corral.errors import ConfigError, FileError, ShellError
from corral.shells import JailedShell, ShellLimits
from corral.types import Tier
from tests.shells.attempts import expect_no_escape, jailed

pytestmark = pytest.mark.anyio

_JAILS: tuple[Tier, ...] = ("namespaces", "landlock")
_SOMEBODY = 12_345


def site_packages() -> list[str]:
    return [each for each in sys.path if each.endswith("site-packages")]


@pytest.mark.parametrize("tier", _JAILS)
async def test_no_attempt_gets_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tier: Tier) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HOST", "secret")
    tmp_path.chmod(0o755)
    with anyio.fail_after(120):
        await expect_no_escape(tmp_path, tier)


@pytest.mark.skipif(os.geteuid() != 0, reason="whoever is not root runs the test above as an ordinary user")
def test_no_attempt_gets_out_of_a_jail_whose_user_is_the_hosts() -> None:
    """Of an ordinary user, in the tier without namespaces: commands then are the user's own processes."""
    place = Path(tempfile.mkdtemp(prefix="jail-test-", dir="/tmp"))
    try:
        os.chown(place, _SOMEBODY, _SOMEBODY)
        path = [str(each) for each in (Path(__file__).parents[2], Path(corral.__file__).parents[1], *site_packages())]
        done = subprocess.run(
            ["/usr/bin/python3", "-B", "-m", "tests.shells.attempts", str(place)],
            env={
                "PYTHONPATH": ":".join(path),
                "TMPDIR": str(place),
                "SECRET_OF_THE_HOST": "secret",
                "PATH": "/usr/bin",
            },
            cwd="/",
            user=_SOMEBODY,
            group=_SOMEBODY,
            extra_groups=[],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "contained\n", ""), done
    finally:
        shutil.rmtree(place)


async def test_programs_and_commands_share_a_session() -> None:
    async with Corral() as corral, corral.session(shell=ShellLimits()) as session:
        await session.files.write_text("in.txt", "host")
        program = await session.execute(
            'import fs from "fs"; fs.writeFileSync("ts.txt", fs.readFileSync("in.txt", "utf8") + " ts")'
        )
        assert program.error is None
        done = await session.shell.run(
            "cat ts.txt; printf '#!/bin/sh\\necho script' > run; chmod +x run; ./run; echo t > /tmp/t"
        )
        assert done.stdout == "host tsscript\n", done
        program = await session.execute(
            'import os\n(open("run").read(), open("/tmp/t").read(), os.getcwd())', language="python"
        )
        assert program.value == ["#!/bin/sh\necho script", "t\n", "/workspace"], program
        await session.shell.run("ln -s /etc/passwd link; mkfifo fifo; echo new > new")
        program = await session.execute("return 1")
        assert program.error is None
        assert program.files is not None
        assert "/workspace/new" not in program.files.created  # made by the host's command, not by the program
        assert await session.files.read_text("new") == "new\n"
        with pytest.raises(FileError, match="link"):
            await session.files.read_text("link")


async def test_a_session_without_a_shell_says_so() -> None:
    async with Corral() as corral, corral.session() as session:
        with pytest.raises(ConfigError, match="shell=True"):
            _ = session.shell


async def test_bounds_of_memory_processes_disk_and_number() -> None:
    limits = ShellLimits(memory_mb=200, processes=20, commands=2)
    async with jailed(files=[Mount("/workspace", Scratch(bytes=1_000_000, files=10))], limits=limits) as shell:
        done = await shell.run("python3 -c 'bytearray(300 << 20)'")
        assert "MemoryError" in done.stderr
        done = await shell.run(
            "for i in 1 2 3; do python3 -c 'b = bytearray(90 << 20); import time; time.sleep(60)' & done; wait"
        )
        assert done.exit_code == 137
        assert "200 MB of memory together" in done.stderr
        done = await shell.run("for i in $(seq 1 60); do sleep 5 & done; kill $(jobs -p)")
        assert "Resource temporarily unavailable" in done.stderr
        done = await shell.run(":(){ :|:& };:; sleep 0.3; echo alive")
        assert "alive" in done.stdout
        done = await shell.run(
            "head -c 2000000 /dev/zero > big; stat -c %s big; for n in $(seq 1 20); do : > f$n; done; ls | wc -l"
        )
        size, count = map(int, done.stdout.split())
        assert size <= 1_003_520  # whole pages
        assert count == 10
        assert "No space left" in done.stderr
        async with await shell.spawn("sleep 60"), await shell.spawn("sleep 60"):
            with pytest.raises(ShellError, match="ShellLimits"):
                await shell.run("true")
        assert (await shell.run("echo again")).stdout == "again\n"


async def test_a_directory_of_the_host_is_for_reading_unless_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    files = [Mount("/workspace"), Mount("/in", Directory(tmp_path))]
    limits = ShellLimits(processes=20)
    async with jailed(files=files, limits=limits) as shell:
        done = await shell.run("cat /in/file; echo x > /in/new")
        assert done.stdout == "text"
        assert "Read-only" in done.stderr
        done = await shell.run("for i in $(seq 1 60); do sleep 50 & done; wait")  # also where commands are root's
        assert done.exit_code == 137 or "Resource temporarily unavailable" in done.stderr


async def test_nothing_is_left_and_what_is_closed_says_so() -> None:
    shell = JailedShell()
    with pytest.raises(ConfigError, match="async with"):
        await shell.run("true")
    async with shell:
        process = await shell.spawn("sleep 1000")
    assert await process.wait() == 137
    with pytest.raises(ConfigError, match="async with"):
        await shell.run("true")
    with pytest.raises(ConfigError, match="positive"):
        ShellLimits(processes=0)
    with pytest.raises(ShellError, match="file"):
        async with JailedShell() as shell:
            await shell.run(f": {'x' * 200_000}")
