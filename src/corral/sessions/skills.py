"""Skills: folders with `SKILL.md` and modules that programs of both languages import."""

from __future__ import annotations

import os
import re
import stat
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from corral.arguments import checked
from corral.errors import ConfigError
from corral.jail.temporary import TemporaryFolder

PLACE = "/root/skills"
"""Folder of all skills, as programs see it."""

_FILE = "SKILL.md"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}", re.ASCII)
_MOST_TEXT_BYTES = 256_000
_READ = os.O_RDONLY | (os.O_BINARY if sys.platform == "win32" else os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
_MOST_BYTES = 20_000_000
_MOST_FILES = 1_000
_MOST_DESCRIPTION_CHARS = 1_024
_KEY = re.compile(r"([A-Za-z][\w-]*):(?:\s+(.*))?")


@checked
class Skill:
    """Folder with modules in either language and a `SKILL.md`, which begins with `name` and `description`.

    The constructor reads the folder, so programs do not see later changes. Hidden files and `__pycache__` are left out.

    Raises:
        ConfigError: `SKILL.md` is missing, malformed or too large, or the folder has a symbolic link, or too many files
            or bytes.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        text = self.folder / _FILE
        try:
            content = _read(text, _MOST_TEXT_BYTES)
        except FileNotFoundError:
            raise ConfigError(f"there is no {text}; a skill is a folder with {_FILE}") from None
        try:
            self.text = content.decode()
        except UnicodeDecodeError:
            raise ConfigError(f"{text} is not UTF-8; save it as such") from None
        front = _front_matter(text, self.text)
        self.name = front.get("name", "")
        self.description = front.get("description", "")
        if _NAME.fullmatch(self.name) is None:
            raise ConfigError(
                f"{text}: name: {self.name[:80]!r} is not the name of a skill; write 1 to 64 of a-z, 0-9, '-' and '_'"
            )
        if not 0 < len(self.description) <= _MOST_DESCRIPTION_CHARS:
            raise ConfigError(
                f"{text}: description: has {len(self.description)} characters; write 1 to {_MOST_DESCRIPTION_CHARS}"
            )
        self.files = _files(self.folder)
        self.files[_FILE] = content

    def __repr__(self) -> str:
        return f"Skill({str(self.folder)!r})"

    @property
    def path(self) -> str:
        """Folder of the skill, as programs of a session see it."""
        return f"{PLACE}/{self.name}"


def _front_matter(path: Path, text: str) -> dict[str, str]:
    """Parses the keys between the first two `---` lines. Values are plain or quoted, and can continue on indented
    lines."""
    first, *lines = text.splitlines() or [""]
    if first.rstrip() != "---" or "---" not in (ended := [line.rstrip() for line in lines]):
        raise ConfigError(f"{path} has no front matter; begin it with the lines ---, name: ..., description: ..., ---")
    values: dict[str, str] = {}
    key = ""
    for number, line in enumerate(ended[: ended.index("---")], 2):
        if not line or line.startswith("#"):
            continue
        if line[0] in " \t":
            if key:
                values[key] = f"{values[key]} {line.strip()}".strip()
            continue
        match = _KEY.fullmatch(line)
        if match is None:
            raise ConfigError(f"{path}:{number}: expected `key: text`; the front matter has name and description")
        key, value = match[1], match[2] or ""
        values[key] = "" if value in (">", "|", ">-", "|-") else value.strip()
    return {key: _unquoted(value) for key, value in values.items()}


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value


def _files(folder: Path) -> dict[str, bytes]:
    """Reads all files, by path within the folder."""
    contents: dict[str, bytes] = {}
    left = _MOST_BYTES
    for path in _paths(folder):
        if len(contents) == _MOST_FILES:
            raise ConfigError(
                f"the skill {folder} has over {_MOST_FILES} files; remove those that programs do not need"
            )
        content = _read(path, left)
        left -= len(content)
        contents[path.relative_to(folder).as_posix()] = content
    return contents


def _paths(folder: Path) -> Iterator[Path]:
    def fail(error: OSError) -> None:
        raise ConfigError(f"cannot read the skill {folder}: {error}") from error

    for parent, folders, files in os.walk(folder, onerror=fail):
        folders[:] = sorted(each for each in folders if not each.startswith(".") and each != "__pycache__")
        for name in folders:
            if (Path(parent) / name).is_symlink():
                raise ConfigError(f"{Path(parent) / name} is a symbolic link; a skill can only have files and folders")
        yield from (Path(parent) / name for name in sorted(files) if not name.startswith("."))


def _read(path: Path, most: int) -> bytes:
    """Reads a regular file of at most `most` bytes. Refuses symbolic links."""
    if path.is_symlink():
        raise ConfigError(f"{path} is a symbolic link; a skill can only have files and folders")
    try:
        descriptor = os.open(path, _READ)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ConfigError(f"{path} is not a regular file; remove it from the skill")
            content = file.read(most + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    if len(content) > most:
        raise ConfigError(f"{path} is too large: a skill can have {_MOST_BYTES} bytes, and {_FILE} {_MOST_TEXT_BYTES}")
    return content


SomeSkill: TypeAlias = Skill | str | Path

_SPECIFIER = re.compile(r"(?:/root/)?(skills/([a-z0-9][a-z0-9_-]*)(?:/[\w.@~+-]+)+)", re.ASCII)


class SkillSet:
    """Skills by name.

    Raises:
        ConfigError: two skills have the same name, or `Skill` raises it.
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
        """Returns the module of a skill that a program names as `skills/NAME/...`; None for other modules."""
        match = _SPECIFIER.fullmatch(specifier)
        if match is None or match[2] not in self.skills or {".", ".."} & {*match[1].split("/")}:
            return None
        return match[1]

    def node_modules(self) -> Path:
        """Returns a folder with the package `skills`, which contains a folder for each skill. Blocks the first time."""
        with self._lock:
            if self._folder is None:
                self._folder = _written(self.skills.values())
            return self._folder.path / "node_modules"


def _written(skills: Iterable[Skill]) -> TemporaryFolder:
    """Copies skills to a folder that guests of any user can read."""
    folder = TemporaryFolder()
    (folder.path / "deno.json").write_text("{}", encoding="utf-8")  # the bundler looks for it
    for skill in skills:
        for name, content in skill.files.items():
            path = folder.path / "node_modules" / "skills" / skill.name / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    for path in folder.path.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder
