"""Running `corral` in processes that need not import it first: they are forks of one that has."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from corral.cli import main

__all__ = ["run_warm"]

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([__name__])


def run_warm(
    arguments: list[str], *, input: str, cwd: Path, env: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` with pipes for `corral ARGUMENTS`; but its standard streams are files."""
    with tempfile.TemporaryDirectory() as directory:
        streams = [Path(directory, name) for name in ("stdin", "stdout", "stderr")]
        streams[0].write_text(input, encoding="utf-8")
        process = _FORKS.Process(target=_run, args=(arguments, cwd, dict(env), streams))
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(arguments, timeout)
        _, stdout, stderr = (stream.read_text(encoding="utf-8") for stream in streams)
        return subprocess.CompletedProcess(arguments, process.exitcode, stdout, stderr)


def _run(arguments: list[str], cwd: Path, env: dict[str, str], streams: list[Path]) -> None:
    for number, (stream, flags) in enumerate(zip(streams, (os.O_RDONLY, *[os.O_WRONLY | os.O_CREAT] * 2), strict=True)):
        opened = os.open(stream, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, encoding="utf-8", closefd=False) for number, mode in enumerate("rww")
    )
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv = ["corral", *arguments]
    sys.exit(main())
