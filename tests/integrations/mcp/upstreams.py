"""Real MCP servers of other people's, over 200 tools in all, as a client's configuration names them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import deno

from tests.foreign import deno_arguments, deno_environment

__all__ = ["NAMES", "TASK", "configured", "prepared"]

NAMES = ("everything", "files", "git", "gitlab")
_NOWHERE = "http://127.0.0.1:9/api/v4"

TASK = """\
const [log, sum, image] = await Promise.all([
  tools.git.git_log({ repo_path: FOLDER, max_count: 5 }),
  tools.everything.get_sum({ a: 2, b: 3 }),
  tools.everything.get_tiny_image({}),
]);
const path = `${FOLDER}/report.txt`;
await tools.files.write_file({ path, content: sum });
const found = await tools.search({ query: "approve a merge request", limit: 3 });
return {
  report: (await tools.files.read_text_file({ path })).content,
  commits: JSON.stringify(log).match(/first commit/g).length,
  found: found.items.map((item) => item.name),
  content: image.content.filter((block) => block.type === "image"),
};
"""


def prepared(folder: Path) -> Path:
    """What the servers are about, in a folder; and the configuration that names them."""
    git = ["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-C", str(folder)]
    (folder / "a.txt").write_text("a")
    for command in (["init", "--quiet"], ["add", "a.txt"], ["commit", "--quiet", "--message", "first commit"]):
        subprocess.run([*git, *command], check=True)
    path = folder / "servers.json"
    path.write_text(json.dumps({"mcpServers": configured(folder)}))
    return path


def configured(folder: Path) -> dict[str, Any]:
    """The members of `mcpServers`."""
    programs = Path(sys.executable).parent

    def npm(package: str, *arguments: str, **env: str) -> dict[str, Any]:
        return {
            "command": deno.find_deno_bin(),
            "args": [*deno_arguments(package), *arguments],
            "env": {**deno_environment(), **env},
        }

    return {
        "everything": npm("@modelcontextprotocol/server-everything"),
        "files": npm("@modelcontextprotocol/server-filesystem", str(folder)),
        "git": {"command": str(programs / "mcp-server-git"), "args": ["--repository", str(folder)]},
        "gitlab": npm(
            "@zereight/mcp-gitlab",
            GITLAB_PERSONAL_ACCESS_TOKEN="glpat-of-nobody",
            GITLAB_API_URL=_NOWHERE,
            USE_PIPELINE="true",
            USE_MILESTONE="true",
            USE_GITLAB_WIKI="true",
        ),
    }
