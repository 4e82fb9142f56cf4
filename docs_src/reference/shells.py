"""The table of what each shell does, made of the cases of the suites and of the shells' capabilities."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from corral.containment import ContainmentKind
from corral.shells import DaytonaShell, E2BShell, LocalShell, MemoryShell, ShellCapabilities, VercelShell
from corral.testing import FilesSuite, ShellSuite
from corral.testing.shells import behaviours

__all__ = ["CAPABILITIES", "table_of_shells"]

CAPABILITIES: Mapping[str, ShellCapabilities] = {
    "LocalShell": LocalShell(Path("/")).capabilities,
    "JailedShell": ShellCapabilities(containment=ContainmentKind.of_tier("namespaces"), network="none", links=False),
    "MemoryShell": MemoryShell().capabilities,
    "E2BShell": E2BShell(None).capabilities,
    "DaytonaShell": DaytonaShell(None).capabilities,
    "VercelShell": VercelShell(None).capabilities,
}
"""Of each shell without options. A jailed one has them once it is open; its tests hold it to these."""
_CLOUDS = {"E2BShell", "DaytonaShell", "VercelShell"}
_HEAD = """# What each shell does

This table compares what the shells can do. `scripts/reference` makes it from their `capabilities`, and from the cases
of `ShellSuite` and `FilesSuite`, which all of these shells pass. "Yes" means that the case holds. Otherwise, the cell
says what the shell does instead, as one of its `capabilities` declares. Services are
tested on the wire: their real SDKs talk to servers of these tests, which run the commands.
"""


def table_of_shells() -> str:
    """The page with a table for each suite."""
    parts = [_HEAD]
    columns = [f"`{name}`" + (", on the wire" if name in _CLOUDS else "") for name in CAPABILITIES]
    for suite, title in ((ShellSuite, "commands"), (FilesSuite, "files")):
        found = [behaviours(suite, each) for each in CAPABILITIES.values()]
        rows = [f"| {row} | {' | '.join(each[row] for each in found)} |" for row in found[0]]
        parts.append("\n".join([f"| {title} | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|", *rows, ""]))
    return "\n".join(parts)
