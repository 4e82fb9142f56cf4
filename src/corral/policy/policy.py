"""Policies, their files, and their verdicts on calls."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

from corral.arguments import checked
from corral.concurrency.threads import run_in_own_thread
from corral.errors import ConfigError
from corral.logs import get_logger
from corral.policy.rules import (
    MOST_CHARS,
    RANKS,
    CompiledRule,
    Decision,
    Label,
    Limit,
    PolicyCall,
    Rule,
    RuleSet,
    names_of,
)
from corral.tools import Tool
from corral.types import ExecutionContext

logger = get_logger("corral.policy")

_LOOK_SECONDS = 1.0
"""Seconds between two looks at the files."""
_MOST_FILES = 100
_DIGEST_CHARS = 16


class Verdict(NamedTuple):
    """Decision of a policy on one call. A named tuple, because every call creates one; construct it with keywords."""

    decision: Decision
    """`limit` allows the call if its rates do; `ask` needs an approval."""
    rules: tuple[str, ...] = ()
    """Ids of all rules that matched, the most restrictive first."""
    rule: str | None = None
    """Id of the rule that decided; None if no rule did."""
    reason: str = ""
    """Reason for the program and for approvers."""
    limits: tuple[Limit, ...] = ()
    """Rates to count."""
    policy: str | None = None
    """Digest of the policy."""
    would: Decision | None = None
    """Decision with files in mode "observe", if it is more restrictive. For the record only."""

    @property
    def refusal(self) -> str:
        """Text for the program that the call is denied, and by which rule."""
        return "the policy denies this call" if self.rule is None else f"rule {self.rule} denies this call"


class PolicySource(Protocol):
    """Decides on calls: a `Policy`, or an adapter to another engine."""

    def decide(self, call: PolicyCall, /) -> Verdict | Awaitable[Verdict]:
        """Returns the verdict on a call. If this raises, the call is denied."""
        ...


class _Files:
    """Rules of all files, read at one time."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.sets = tuple(RuleSet(text, name) for name, text in texts.items())
        known: dict[str, str] = {}
        for each in self.sets:
            for rule in each.document.rule:
                if rule.id in known:
                    raise ConfigError(f"{each.name}: {known[rule.id]} has a rule {rule.id!r} too; rename one of them")
                known[rule.id] = each.name
        parts = [hashlib.sha256(text.encode()).hexdigest() for text in texts.values()]
        self.digest = hashlib.sha256("".join(parts).encode()).hexdigest()[:_DIGEST_CHARS]


@dataclass(frozen=True, slots=True)
class ToolsView:
    """View of tools for callers with certain rules."""

    rules: tuple[tuple[RuleSet, frozenset[CompiledRule]], ...]
    """By file, the rules about these callers."""

    def __call__(self, path: str, tool: Tool) -> Tool | None:
        """Returns the tool, with a remark on its conditions if they are short; None if all calls of it are denied."""
        names = names_of(path, tool)
        remarks = [each.remark(names, rules) for each, rules in self.rules]
        if None in remarks:
            return None
        text = "; ".join(filter(None, remarks))
        return replace(tool, policy=text) if text else tool


@checked
class Policy:
    """Rules of one or more TOML files. A call is as restricted as the most restrictive file says.

    The files are read here, and again when they change. A changed file that cannot be read leaves the previous rules
    in force, and the reason is logged. `texts` are the contents of further files, which do not change.

    Raises:
        ConfigError: a file cannot be read or is invalid, or two rules have the same id.
    """

    def __init__(self, *files: str | Path, texts: Sequence[str] = ()) -> None:
        if not 1 <= len(files) + len(texts) <= _MOST_FILES:
            raise ConfigError(f"a Policy needs 1 to {_MOST_FILES} files, not {len(files) + len(texts)}")
        self._paths = tuple(map(Path, files))
        self._texts = {f"text {number}": text for number, text in enumerate(texts, 1)}
        self._reading = threading.Lock()
        self._seen = self._look()
        self._files = _Files(self._read())
        self._looked = time.monotonic()

    def __repr__(self) -> str:
        return f"<Policy {self.digest} of {', '.join(each.name for each in self._files.sets)}>"

    @property
    def digest(self) -> str:
        """Digest of the files in force: 16 hexadecimal digits."""
        return self._files.digest

    @property
    def rule_sets(self) -> tuple[RuleSet, ...]:
        """Rules of each file."""
        return self._files.sets

    def decide(self, call: PolicyCall) -> Verdict:
        """Returns the verdict on a call."""
        files = self._files
        decision: Decision = "allow"
        strictest: Decision = "allow"
        rules: list[Rule] = []
        limits: list[Limit] = []
        for each in files.sets:
            answer, matched, counted = each.decide(call)
            rules += matched
            if RANKS[answer] > RANKS[strictest]:
                strictest = answer
            if not each.observes:
                limits += counted
                if RANKS[answer] > RANKS[decision]:
                    decision = answer
        if len(files.sets) > 1:
            rules.sort(key=lambda rule: RANKS[rule.do], reverse=True)
        first = rules[0] if rules else None
        decides = first is not None and RANKS[first.do] >= RANKS[strictest]
        return Verdict(
            decision=decision,
            rules=tuple([rule.id for rule in rules]),
            rule=first.id if first is not None and (decides or strictest == "limit") else None,
            reason=first.reason if first is not None and decides else "",
            limits=tuple(limits),
            policy=files.digest,
            would=None if strictest == decision else strictest,
        )

    def view(self, context: ExecutionContext, scopes: frozenset[str]) -> ToolsView:
        """Returns the view of tools for a caller with these scopes. It is the same for callers with the same rules."""
        return ToolsView(
            tuple((each, each.rules_for(context, scopes)) for each in self._files.sets if not each.observes)
        )

    def labels(self, path: str) -> tuple[Label, ...]:
        """Returns the labels that all enforced files give a tool with this name in programs."""
        return tuple(label for each in self._files.sets if not each.observes for label in each.labels_of(path))

    def reload(self) -> bool:
        """Reads the files again. Returns True if they have changed.

        Raises:
            ConfigError: a file cannot be read or is invalid; the previous rules stay in force.
        """
        if not self._paths:
            return False
        with self._reading:  # a slow reader of an older version must not replace a newer one
            self._looked = time.monotonic()
            self._seen = self._look()
            files = _Files(self._read())
            changed = files.digest != self._files.digest
            if changed:
                self._files = files
            return changed

    async def refresh(self) -> None:
        """Reads the files again if they have changed, and looks at most once a second. Logs a problem."""
        if not self._paths or time.monotonic() - self._looked < _LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        try:
            changed = await run_in_own_thread(self._reload_changed)
        except ConfigError as error:
            logger.error("the previous policy %s stays in force: %s", self.digest, error)
        else:
            if changed:
                logger.info("the policy is now %s", self.digest)

    def _reload_changed(self) -> bool:
        return self._look() != self._seen and self.reload()

    def _look(self) -> tuple[object, ...]:
        """Returns the times, sizes and identities of the files, which change with them."""
        seen: list[object] = []
        for path in self._paths:
            try:
                status = path.stat()
            except (OSError, ValueError):
                seen.append(None)
            else:
                seen.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(seen)

    def _read(self) -> dict[str, str]:
        texts = dict(self._texts)
        for path in self._paths:
            try:
                with path.open(encoding="utf-8-sig") as file:  # editors on Windows begin files with a mark
                    texts[str(path)] = file.read(MOST_CHARS + 1)
            except (OSError, ValueError) as error:
                raise ConfigError(f"the policy {path} cannot be read: {error}") from None
        return texts


PolicyFiles: TypeAlias = str | Path | Iterable[str | Path]


def as_policy(source: PolicySource | PolicyFiles) -> PolicySource:
    """Returns the policy for `Corral(policy=...)`.

    Raises:
        ConfigError: see `Policy`.
    """
    if isinstance(source, str | Path):
        return Policy(source)
    if isinstance(source, Iterable):
        return Policy(*source)
    return source
