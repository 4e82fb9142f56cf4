"""The skills of programs, copied to a folder that has nothing else."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from corral.containment.temporary import TemporaryFolder
from corral.errors import ConfigError
from corral.skills.skill import Skill

__all__ = ["SkillSet", "SomeSkill"]

SomeSkill: TypeAlias = Skill | str | Path

_SPECIFIER = re.compile(r"(?:/root/)?(skills/([a-z0-9][a-z0-9_-]*)(?:/[\w.@~+-]+)+)", re.ASCII)


class SkillSet:
    """Skills by name.

    Raises:
        ConfigError: two have the same name; or as `Skill`.
    """

    def __init__(self, skills: Iterable[SomeSkill] = ()) -> None:
        self.skills: dict[str, Skill] = {}
        self._folder: TemporaryFolder | None = None
        self._lock = threading.Lock()
        for each in skills:
            skill = each if isinstance(each, Skill) else Skill(each)
            other = self.skills.setdefault(skill.name, skill)
            if other is not skill:
                raise ConfigError(f"two skills are named {skill.name!r}: {other.folder} and {skill.folder}; rename one")

    def module(self, specifier: str) -> str | None:
        """The module of a skill that a program names, as `skills/NAME/...`; None if it is none of these."""
        found = _SPECIFIER.fullmatch(specifier)
        if found is None or found[2] not in self.skills or {".", ".."} & {*found[1].split("/")}:
            return None
        return found[1]

    def node_modules(self) -> Path:
        """A folder with a package `skills`, which has a folder for each skill. Blocks the first time."""
        with self._lock:
            if self._folder is None:
                self._folder = _written(self.skills.values())
            return self._folder.path / "node_modules"


def _written(skills: Iterable[Skill]) -> TemporaryFolder:
    """Copies skills to where guests of any user may read them."""
    folder = TemporaryFolder()
    (folder.path / "deno.json").write_text("{}", encoding="utf-8")  # which the bundler looks for
    for skill in skills:
        for name, content in skill.files.items():
            path = folder.path / "node_modules" / "skills" / skill.name / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    for path in folder.path.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder
