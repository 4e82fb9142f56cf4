"""`python -m bench.packages`: the first import of packages of npm in a session, and by Deno's own npm.

Needs the packages of the tests: `python -m tests.foreign`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from deno import find_deno_bin

from bench.options import positive
from corral import Corral, Session
from corral.packages import NpmPackages

_FOLDER = Path(sys.prefix) / "packages"
_IMPORT = 'const began = performance.now(); await import("NAME"); const took = performance.now() - began;'


async def _in_session(session: Session, name: str) -> float:
    result = await session.execute(f"{_IMPORT.replace('NAME', name)} return took;")
    result.raise_for_error()
    assert isinstance(result.value, float | int)
    return result.value


def _by_deno(name: str) -> float:
    program = f"{_IMPORT.replace('NAME', name)} console.log(took);"
    command = [
        find_deno_bin(),
        "run",
        "--allow-all",
        "--cached-only",
        "--quiet",
        f"--config={_FOLDER / 'deno.json'}",
        "-",
    ]
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "NO_COLOR": "1", "DENO_NO_UPDATE_CHECK": "1"}
    environment["DENO_DIR"] = str(Path(sys.prefix) / "deno")
    done = subprocess.run(
        command, input=program, cwd=_FOLDER, env=environment, capture_output=True, encoding="utf-8", check=False
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return float(done.stdout)


async def _opened(packages: NpmPackages) -> float:
    """Milliseconds until a session with these packages has its guest."""
    async with Corral(check=False) as corral, corral.session(languages=["typescript"]):
        began = time.perf_counter()
        async with corral.session(packages=packages, languages=["typescript"]):
            return (time.perf_counter() - began) * 1000


async def _measure(rounds: int) -> None:
    names = NpmPackages(_FOLDER).allowed
    packages = NpmPackages(_FOLDER, preload=names)
    times: dict[str, tuple[list[float], ...]] = {name: ([], [], []) for name in names}
    async with (
        Corral(check=False) as corral,
        corral.session(packages=NpmPackages(_FOLDER)) as plain,
        corral.session(packages=packages) as ready,
    ):
        for session in (plain, ready):
            await session.execute("1")
        for name in names:  # has it bundled, and in the caches of both
            await _in_session(plain, name)
            _by_deno(name)
        for _ in range(rounds):
            for name in names:
                bundled, preloaded, deno = times[name]
                bundled.append(await _in_session(plain, name))
                preloaded.append(await _in_session(ready, name))
                deno.append(_by_deno(name))
    print(f"first import, ms, medians of {rounds}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    print(f"{'':12}{'bundled':>9}{'preloaded':>11}{'Deno npm':>10}{'bundled/Deno':>14}{'preloaded/Deno':>16}")
    medians = {name: [statistics.median(each) for each in found] for name, found in times.items()}
    for name, (bundled, preloaded, deno) in medians.items():
        note = "" if name not in packages.not_preloaded else "  not preloaded"
        print(
            f"{name:12}{bundled:9.1f}{preloaded:11.1f}{deno:10.1f}{bundled / deno:14.2f}{preloaded / deno:16.3f}{note}"
        )
    for place, label in enumerate(("bundled", "preloaded")):
        loaded = [name for name in names if place == 0 or name not in packages.not_preloaded]
        ratios = [medians[name][place] / medians[name][2] for name in loaded]
        print(f"{label}: median ratio to Deno {statistics.median(ratios):.3f}, largest {max(ratios):.3f}")
    for name, reason in packages.not_preloaded.items():
        print(f"{name} is not preloaded: {reason}")
    for label, each in (("none", NpmPackages(_FOLDER)), ("tried before", packages)):
        print(f"a session with its guest, preloading {label}: {await _opened(each):.0f} ms")
    print(f"the same, tried anew: {await _opened(NpmPackages(_FOLDER, preload=names)):.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.packages", description="Medians, on this machine as it is.")
    parser.add_argument("--rounds", metavar="N", type=positive, default=9, help="how many rounds (default: 9)")
    asyncio.run(_measure(parser.parse_args().rounds))


if __name__ == "__main__":
    main()
