"""Flow of untrusted data through the programs of a session. See docs/policy.md.

A program is fixed before it reads anything, so text that it reads can change its values, but not its code. The next
program is another matter: a model writes it after it has seen the result. So a session is *exposed* once text of an
untrusted tool has gone back to its model. Values have no labels inside a guest, where any operation would lose them, so
the host compares texts at the bridge, and a destination that nothing explains is doubtful.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from hashlib import blake2b
from threading import Lock
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, cast
from weakref import WeakKeyDictionary

from corral.policy.policy import Policy
from corral.policy.rules import names_of
from corral.rendering.full_text import escape_hidden
from corral.rendering.preview import preview_text
from corral.tools import Tool
from corral.types import TRANSCRIPT, Doubt, ExecutionContext, JsonSchema, References, Transcript

_SESSION_CHARS = 262_144
"""Maximum characters that a session keeps of results and of persons' texts, each."""
_ALL_CHARS = 64_000_000
"""Maximum characters that all sessions of one Corral keep."""
_MOST_SESSIONS = 10_000
_COUNT_EVERY = 256
"""Number of executions after which the characters of all sessions are counted."""
_MOST_DOUBTS = 5
_MOST_TOOLS = 20
"""Maximum number of tools that a session names as read."""
_STORED_CHARS = 32_768
"""Maximum characters of each kind of text in the stored state of a session."""
_STORED_RESULT_CHARS = _STORED_CHARS // 20
"""Maximum characters of a result in it, which are only for telling where a value came from."""
_MOST_OPEN = 100
"""Maximum number of programs of one session that run at once before it counts as exposed."""
_SHORTEST = 3
"""Minimum characters of a text that can explain a destination."""
_SHORT_CHARS = 16
"""Maximum characters of texts below `_SHORTEST` that a result shows without exposing its session."""
_DIGITS = 1_000
"""Maximum digits of the numbers that a result shows without exposing its session."""
_MOST_ATOMS = 20_000
"""Maximum number of texts and numbers that are looked at in one value."""
_SHOWN_CHARS = 120
_MOST_PLACES = 10_000
"""Maximum number of occurrences of one text that are looked at. `aa` occurs everywhere in a long row of `a`."""
_SEARCH_WORK = 100_000_000
"""Maximum characters that are searched for the texts of one program, which takes less than half a second. Further texts
count as written by nobody."""
_URL_WORK = 200
"""Characters that are searched in the time in which two URLs are compared."""
_ECHO_WORK = 4_000_000
"""Maximum characters compared to find out if a trusted result repeats an input."""

_LABEL = r"[a-z0-9](?:[a-z0-9_-]{0,62})"
_HOST = rf"(?:localhost|{_LABEL}(?:\.{_LABEL}){{1,20}})"
_EMAIL = re.compile(rf"[a-z0-9._+-]{{1,64}}@{_HOST}")
_MAILBOX = re.compile(rf"[^<>@,;\"\\\x00-\x1f\x7f]{{0,200}}<({_EMAIL.pattern})>")
_URL = re.compile(
    rf"(?:([a-z][a-z0-9+.-]{{1,20}})://)?({_HOST})(?::([0-9]{{1,5}}))?([/?#][^\s\\\"'`<>{{}}|^]{{0,4000}})?"
)
_SPLIT = re.compile(r"[,;\n]")
_FINDING = re.compile(rf"(?<![\w.+@%-]){_EMAIL.pattern}(?![\w@-]|\.\w)|(?<![\w.@%-]){_URL.pattern}")
_TRAILING = ".,:;!?)'\"]*_$"
_DOTS = re.compile(r"(?:^|/)(?:\.|%2e){1,2}(?:/|$)|%2f|%5c|%25", re.IGNORECASE)
"""Parts of a path that change its meaning when it is normalized or decoded."""
_ELSEWHERE = re.compile(
    r"(?::|%(?:25)*3a)(?:/|%(?:25)*2f)|(?:[=/]|%(?:25)*3d)(?:(?:/|%(?:25)*(?:2f|5c))(?:%(?:25)*0[09ad])*){2}\w",
    re.IGNORECASE,
)
"""Sign of another address within a URL, which a server might redirect to."""
_CONTINUES = re.compile(r"[\w@+%=&-]|\.\w|[/\\]\.?\w")
"""Text after a match that shows that the match is part of a longer word, address or path."""
_QUOTES = "\"'`"
_PORTS = {"http": "80", "https": "443"}
_DESTINATION_FORMATS = frozenset(
    ("uri", "url", "uri-reference", "iri", "iri-reference", "email", "idn-email", "hostname", "idn-hostname", "phone")
)

_Key: TypeAlias = tuple[str | None, str, str | None]
_Change: TypeAlias = "Callable[[_State | None], tuple[bool, _State]]"
Atom: TypeAlias = str | int | float | bytes


class FlowLabel(NamedTuple):
    """Label of a tool, in which everything is decided."""

    untrusted: bool
    """True if its results have text that others wrote."""
    sends: tuple[str, ...]
    """Parameters that say where something goes."""
    changes: bool
    """True if calls have effects that a person should have asked for."""
    known: tuple[str, ...]
    """The host's own destinations."""


_UNKNOWN = FlowLabel(untrusted=True, sends=(), changes=False, known=())


def _any(values: Iterable[bool | None]) -> bool | None:
    answers = [each for each in values if each is not None]
    return any(answers) if answers else None


# --- destinations --------------------------------------------------------------------------------------------------


class _Url(NamedTuple):
    """Address on the web. Without a scheme it stands for http and https."""

    scheme: str | None
    host: str
    port: str | None
    path: str

    @classmethod
    def parse(cls, text: str) -> Self | None:
        match = _URL.fullmatch(text)
        if match is None:
            return None
        scheme, host, port, path = match.groups()
        return cls(scheme, host, None if port is None or port == _PORTS.get(scheme or "https") else port, path or "")

    def covers(self, other: _Url) -> bool:
        """True if the other one is this one or below it: same origin, and the path continues this one."""
        if (self.host, self.port) != (other.host, other.port):
            return False
        if self.scheme != other.scheme and None not in (self.scheme, other.scheme):
            return False
        if (self.scheme or other.scheme or "https") not in ("http", "https") and self.scheme != other.scheme:
            return False
        own, path = self.path.rstrip("/"), other.path
        if not own:
            return not _DOTS.search(path.partition("?")[0]) or path.partition("?")[0] == ""
        if path == self.path or path == own:
            return True
        return path.startswith(own) and path[len(own)] in "/?#" and not _DOTS.search(path.partition("?")[0])


def _lowered(text: str) -> str:
    """Lowers ASCII letters only. Others are compared unchanged: some of them become ASCII in lower case."""
    return text.lower() if text.isascii() else text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "replace")


def _parts(text: str) -> list[str]:
    """Splits a list of recipients; addresses lose their display names."""
    lowered = _lowered(text)
    parts = [lowered] if _URL.fullmatch(lowered) else _SPLIT.split(lowered)
    stripped = [part.strip(" \t\r") for part in parts]
    return [match[1] if (match := _MAILBOX.fullmatch(part)) else part for part in stripped if part]


class _Words:
    """Text in which destinations can be named: texts of persons, or a program's source."""

    def __init__(self, *, is_source: bool = False) -> None:
        self._is_whole = _is_literal if is_source else _stands_alone
        self._is_source = is_source
        self._texts: OrderedDict[str, None] = OrderedDict()
        self._emails: set[str] = set()
        self._urls: dict[str, list[_Url]] = {}
        self._new: list[str] = []
        self._reading = Lock()
        self._addresses = 0
        self.chars = 0

    @property
    def unread(self) -> int:
        """Number of characters that have not been searched for addresses."""
        return sum(map(len, self._new))

    @property
    def held(self) -> int:
        """Size of the texts and the addresses in them, in characters."""
        return self.chars + self._addresses * _URL_WORK

    def add(self, *texts: str) -> None:
        """Adds texts, the oldest first. Beyond the bound, the oldest ones are forgotten."""
        newest: list[str] = []
        room = _SESSION_CHARS
        for text in reversed(texts):
            newest.append(_lowered(text[:_SESSION_CHARS]))
            room -= len(newest[-1])
            if room <= 0:
                break
        # forgotten texts are not added anew by the next program of a long conversation
        if room < 0 and len(newest) > 1:
            newest.pop()
        added = [each for each in dict.fromkeys(reversed(newest)) if each and each not in self._texts]
        self._texts.update(dict.fromkeys(added))
        self.chars += sum(map(len, added))
        if self.chars > _SESSION_CHARS:
            while self.chars > _SESSION_CHARS:
                self.chars -= len(self._texts.popitem(last=False)[0])
            self._emails, self._urls, self._addresses, self._new = set(), {}, 0, []  # a reading thread has the old ones
            added = list(self._texts)
        self._new += added

    def read(self) -> None:
        """Looks for addresses in the new texts. For long texts, call it in a thread; it takes up to a second."""
        with self._reading:
            new, emails, urls = self._new, self._emails, self._urls
            while new:
                self._find(new[0], emails, urls)
                new.pop(0)

    def _find(self, text: str, emails: set[str], urls: dict[str, list[_Url]]) -> None:
        for match in _FINDING.finditer(text):
            word = match[0].rstrip(_TRAILING)
            if self._is_source and "@" not in word and "://" not in word and text[match.start() - 1] not in _QUOTES:
                continue
            self._addresses += 1
            if "@" in word.partition("/")[0]:
                emails.add(word)
            elif (url := _Url.parse(word)) is not None:
                urls.setdefault(url.host, []).append(url)

    def work(self, part: str) -> int:
        """Returns the number of characters that `name` will search; 0 for mail addresses, which are in an index."""
        if self._new:
            self.read()
        if len(part) < _SHORTEST or _EMAIL.fullmatch(part):
            return 0
        url = _Url.parse(part)
        if url is None or _leads_on(url):
            return self.chars
        return _URL_WORK * len(self._urls.get(url.host, ()))

    def name(self, part: str) -> bool:
        """True if they name a destination as a whole: `mybank.com` does not name `bank.com`."""
        if self._new:
            self.read()
        if len(part) < _SHORTEST:
            return False
        if _EMAIL.fullmatch(part):
            return part in self._emails
        url = _Url.parse(part)
        if url is None:
            return self.say(part)
        if not any(each.covers(url) for each in self._urls.get(url.host, ())):
            return False
        return not _leads_on(url) or self.say(part)

    def say(self, text: str) -> bool:
        """True if a text occurs in them, with no part of a word or an address directly before or after it."""
        if len(text) < _SHORTEST:
            return False
        left = _MOST_PLACES
        for each in self._texts:
            start = each.find(text)
            while start >= 0 and left > 0:
                left -= 1
                if self._is_whole(each, start, start + len(text)):
                    return True
                start = each.find(text, start + 1)
        return False

    def texts(self) -> list[str]:
        """Returns the texts, the oldest first."""
        return [*self._texts]

    def contain(self, text: str) -> bool:
        """True if a text occurs anywhere in them."""
        return any(text in each for each in self._texts)


def _stands_alone(text: str, start: int, end: int) -> bool:
    """True if a part of a text has no part of a word or an address directly before or after it."""
    before = text[start - 1 : start] if start else ""
    return not (before.isalnum() or (before and before in "_.@-+/%:=&")) and _CONTINUES.match(text, end) is None


def _is_literal(text: str, start: int, end: int) -> bool:
    """True if a part of a source is a whole literal. An identifier names nothing: `message.to` is also a host."""
    quote = text[start - 1 : start] if start else ""
    return quote != "" and quote in _QUOTES and text[end : end + 1] == quote


def _is_known(part: str, known: Sequence[str]) -> bool:
    """True for one of the host's own destinations: an address at `@host`, an address below a URL, or an equal text."""
    url = _Url.parse(part)
    for each in known:
        own = _lowered(each.strip())
        base = _Url.parse(own) if "://" in own else None
        is_below = url is not None and base is not None and base.covers(url) and not _leads_on(url)
        if own == part or is_below or (own.startswith("@") and _EMAIL.fullmatch(part) and part.endswith(own)):
            return True
    return False


def _leads_on(url: _Url) -> bool:
    """True if a URL can stand for several addresses, or has another one in it, also once its characters are plain."""
    is_plain = unicodedata.is_normalized("NFKC", url.path)
    return not is_plain or _SPLIT.search(url.path) is not None or _ELSEWHERE.search(url.path) is not None


# --- values ---------------------------------------------------------------------------------------------------------


def _atoms(value: object, *, flags: bool = False) -> Iterator[Atom]:
    """Yields texts, numbers and bytes in a value, also the names of members; with `flags` also truth values."""
    pending: list[object] = [value]
    while pending:
        each = pending.pop()
        if type(each) is str or (isinstance(each, str | int | float | bytes) and not isinstance(each, bool)):
            yield each
        elif type(each) is dict:
            for item in reversed(cast("dict[object, object]", each).items()):
                pending += reversed(item)
        elif isinstance(each, Mapping):
            for key, member in reversed(list(cast("Mapping[object, object]", each).items())):
                pending += (member, key)
        elif isinstance(each, list | tuple | set | frozenset):
            pending += reversed(list(cast("Iterable[object]", each)))
        elif each is not None and (flags or not isinstance(each, bool)):
            yield str(each)


def _at(value: object, path: str) -> Iterator[object]:
    """Yields the values at a dotted path, whose names match in any case.

    All items of a list on the path count. A value in place of an object counts as a whole.
    """
    lowered = path.lower()
    name, _, rest = lowered.partition(".")
    pending: list[object] = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, list | tuple):
            pending += cast("Iterable[object]", each)
        elif isinstance(each, dict | Mapping):
            members = cast("Mapping[object, object]", each)
            for key, member in members.items():
                if (own := str(key).lower()) == lowered:
                    yield member
                elif own == name:
                    yield from _at(member, rest)
        else:
            yield each


def _text(atom: Atom) -> str:
    return atom if isinstance(atom, str) else atom.hex() if isinstance(atom, bytes) else repr(atom)


def _shown(text: str) -> str:
    return json.dumps(escape_hidden(preview_text(text, _SHOWN_CHARS)), ensure_ascii=False)


def _tools(names: Iterable[str]) -> str:
    listed = [name if name.startswith(("$", "(")) else f"tools.{name}" for name in names]
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")


# --- state ----------------------------------------------------------------------------------------------------------


class _Output(NamedTuple):
    """Result of a tool, for the origin of a value."""

    tool: str
    sequence: int
    text: str


_State: TypeAlias = Mapping[str, Any]


def _within(texts: Iterable[str]) -> list[str]:
    """Returns the first texts, as many as are stored."""
    room, kept = _STORED_CHARS, list[str]()
    for text in texts:
        room -= len(text)
        if room < 0:
            break
        kept.append(text)
    return kept


def _changed(
    stored: _State | None,
    *,
    own: _State,
    running: frozenset[str],
    opens: str | None = None,
    closes: str | None = None,
    is_lost: bool = False,
) -> tuple[bool, _State]:
    """Adds this host's state of a session to the stored one. Returns True if it is exposed, and the state.

    `opens` and `closes` are the ids of programs that begin and end, and `running` those of this host. A stored program
    that is not one of these runs elsewhere, or was lost with its host, so the model may have seen what it has read, and
    its inputs are unknown.
    """
    exposed = dict.fromkeys(own["exposed"])
    if (stored is None and is_lost) or (stored is not None and not stored):
        exposed[LOST] = None
    stored = stored or {}
    exposed = {**dict.fromkeys(stored.get("exposed", ())), **exposed}
    open_ids = [each for each in stored.get("open", ()) if each in running]
    is_elsewhere = len(open_ids) < len(stored.get("open", ()))
    if is_elsewhere or len(open_ids) >= _MOST_OPEN:
        exposed[LOST] = None
    open_ids += [opens] if opens is not None and opens not in open_ids else []
    inputs: list[str] | None = None
    if not is_elsewhere and own["inputs"] is not None and stored.get("inputs", ()) is not None:
        inputs = [*dict.fromkeys([*own["inputs"], *stored.get("inputs", ())])]
        inputs = inputs if sum(map(len, inputs)) <= _STORED_CHARS else None
    state = {
        "exposed": [*exposed][: _MOST_TOOLS + 1],
        "carried": [*{**dict.fromkeys(stored.get("carried", ())), **dict.fromkeys(own["carried"])}][:_MOST_TOOLS],
        "persons": _within(dict.fromkeys([*own["persons"], *stored.get("persons", ())])),
        "trusted": _within(dict.fromkeys([*own["trusted"], *stored.get("trusted", ())])),
        "allowed": [list(each) for each in {tuple(each) for each in [*own["allowed"], *stored.get("allowed", ())]}][
            :_MOST_OPEN
        ],
        "inputs": inputs,
        "outputs": [*own["outputs"], *(each for each in stored.get("outputs", ()) if each not in own["outputs"])][
            :_MOST_TOOLS
        ],
        "open": [each for each in open_ids if each != closes][:_MOST_OPEN],
    }
    return bool(exposed), state


class SessionStore(Protocol):
    """Store of the data flow of sessions, which all hosts share."""

    async def update_session(self, key: _Key, change: _Change, /) -> _State:
        """Replaces a session's state with what `change` makes of it, durably. Returns the state."""
        ...

    def submit_session(self, key: _Key, change: _Change, /) -> None:
        """Does the same, without waiting for it."""
        ...


class Seen:
    """Data flow of one session."""

    def __init__(self) -> None:
        self.exposed: dict[str, None] = {}
        """Tools whose texts have reached the model; with a name in brackets if its state was lost."""
        self.carried: dict[str, None] = {}
        """Untrusted tools whose texts can be in the session's files and variables."""
        self.persons = _Words()
        self.trusted: set[str] = set()
        """Whole values in results of trusted tools."""
        self.allowed: set[tuple[str, str, str]] = set()
        """Destinations that a person has allowed for the session: tool, parameter, value."""
        self._allowed_chars = 0
        self._inputs: dict[str, None] = {}
        self._inputs_chars = 0
        self._outputs: list[_Output] = []
        self.chars = 0
        self.is_lost = False
        """True until its stored state was read, if it began before this process knew it."""
        self.running: set[str] = set()
        """Ids of its programs that run in this process."""

    def pack(self) -> _State:
        """Returns a bounded copy of the state, to be stored."""
        is_whole = self._inputs_chars <= _STORED_CHARS
        return {
            "exposed": [*self.exposed],
            "carried": [*self.carried],
            "persons": _within(reversed(self.persons.texts())),
            "trusted": _within(self.trusted),
            "allowed": [list(each) for each in self.allowed][:_MOST_OPEN],
            "inputs": [*self._inputs] if is_whole else None,
            "outputs": [
                [*each._replace(text=each.text[:_STORED_RESULT_CHARS])] for each in self._outputs[:_MOST_TOOLS]
            ],
        }

    def add(self, state: _State) -> None:
        """Adds the state that another host, or this one before a restart, has stored."""
        self.exposed.update(dict.fromkeys(state["exposed"]))
        self.carried.update(dict.fromkeys(state["carried"]))
        self.persons.add(*reversed(state["persons"]))
        for text in state["trusted"]:
            if text not in self.trusted and self.chars + len(text) <= _SESSION_CHARS:
                self.trusted.add(text)
                self.chars += len(text)
        for tool, name, value in state["allowed"]:
            self.allow(tool, name, value)
        if state["inputs"] is None:
            self._inputs_chars = _SESSION_CHARS + 1  # some are not known, and a result might repeat them
        else:
            self.note_input(state["inputs"])
        known = {(each.tool, each.sequence, each.text[:_STORED_RESULT_CHARS]) for each in self._outputs}
        for tool, sequence, text in state["outputs"]:
            if (tool, sequence, text) not in known:
                self.keep(_Output(tool, sequence, text))

    @property
    def held(self) -> int:
        """Size of its contents, in characters."""
        return self.chars + self.persons.held + self._inputs_chars + self._allowed_chars

    def allow(self, tool: str, parameter: str, destination: str) -> None:
        """Records that a person has allowed a destination for the session. Those beyond the bound are asked about."""
        size = len(tool) + len(parameter) + len(destination)
        if (tool, parameter, destination) not in self.allowed and self._allowed_chars + size <= _SESSION_CHARS:
            self.allowed.add((tool, parameter, destination))
            self._allowed_chars += size

    def keep(self, output: _Output) -> None:
        """Keeps a result, to tell where a value came from. Those beyond the bound are not kept."""
        text = output.text[: max(0, _SESSION_CHARS - self.chars)]
        if text:
            self._outputs.append(output._replace(text=text))
            self.chars += len(text)

    def note_input(self, value: object) -> None:
        """Records an input of a trusted tool, which might repeat it in a result."""
        inputs = self._inputs
        for atom in _atoms(value):
            if atom in inputs:
                continue
            text = _lowered(_text(atom)).strip()
            if not text or text in inputs:
                continue
            self._inputs_chars += len(text)
            if self._inputs_chars > _SESSION_CHARS:
                return
            inputs[text] = None

    def trust(self, value: object) -> None:
        """Records the whole values of a trusted result. A value that repeats an input of a trusted tool does not
        count: a tool that echoes would otherwise make any text trusted."""
        if self._inputs_chars > _SESSION_CHARS:
            return
        budget = _ECHO_WORK
        for count, atom in enumerate(_atoms(value)):
            text = _lowered(_text(atom)).strip()
            budget -= self._inputs_chars
            if budget < 0 or count > _MOST_ATOMS or self.chars + len(text) > _SESSION_CHARS:
                return
            if len(text) >= _SHORTEST and not any(text in each or each in text for each in self._inputs):
                self.trusted.add(text)
                self.chars += len(text)

    def origin(self, text: str) -> str:
        """Describes where a value first came from."""
        quoted = json.dumps(text)[1:-1].lower()
        for tool, sequence, output in self._outputs:
            if quoted in output.lower():
                return f"it occurs in a result of tools.{tool} (call {sequence})"
        return "its origin is unknown"


class ProgramFlow:
    """Data flow of one execution."""

    def __init__(
        self, flow: DataFlow, key: _Key, seen: Seen, session: Seen, source: str | None, *, shares: bool
    ) -> None:
        self.flow = flow
        self.seen = seen
        self._key = key
        self._session = session
        self._id: str | None = None
        self.is_clean = not seen.exposed
        """True if its program was written before its session was exposed."""
        self.references: References | None = None
        self.read: dict[str, None] = dict(seen.carried) if shares else {}
        """Untrusted tools that it has called, and those whose texts are in the files that it shares."""
        self._shares = shares
        self._source = source or ""
        self._is_remote = source is None
        self._short = _SHORT_CHARS
        self._digits = _DIGITS
        self._work = _SEARCH_WORK

    @cached_property
    def words(self) -> _Words:
        """Its source, in which destinations are named."""
        words = _Words(is_source=True)
        words.add(self._source)
        return words

    async def join(self, execution_id: str) -> None:
        """Reads the session's stored state, and records there that the program begins.

        Raises:
            LedgerError: the state was altered, or cannot be read or written.
        """
        if self.flow.store is None:
            return
        self._session.running.add(execution_id)
        try:
            await self._store(opens=execution_id, is_lost=self._session.is_lost)
        except BaseException:
            self._session.running.discard(execution_id)
            raise
        self._id, self._session.is_lost = execution_id, False
        self.is_clean = not self.seen.exposed
        if self._shares:
            self.read.update(self.seen.carried)

    async def leave(self) -> None:
        """Stores the session's state at the end of the program, before a model sees the result.

        Raises:
            LedgerError: the state could not be written. Other hosts then treat the session as exposed.
        """
        if self._id is not None:
            await self._store(closes=self._id)
            self._session.running.discard(self._id)

    def join_later(self, execution_id: str) -> None:
        """Records in the store that a program begins whose end is not recorded here. Other hosts treat its session as
        exposed.
        """
        if self.flow.store is not None:
            self._session.running.add(execution_id)
            self.flow.store.submit_session(self._key, self._change(opens=execution_id))

    def _change(self, **options: Any) -> _Change:
        return partial(_changed, own=self._session.pack(), running=frozenset(self._session.running), **options)

    async def _store(self, **options: Any) -> None:
        assert self.flow.store is not None
        self._session.add(await self.flow.store.update_session(self._key, self._change(**options)))

    @property
    def unread(self) -> int:
        """Characters that `read_texts` reads, so that `doubts` can be quick."""
        return self.seen.persons.unread + (self.words.unread if self.is_clean else 0)

    def read_texts(self) -> None:
        """Looks for addresses in what persons and the program's author wrote. Thread-safe."""
        self.seen.persons.read()
        if self.is_clean:
            self.words.read()

    def calls(self, tool: str, label: FlowLabel, value: object) -> None:
        """Records a call before it runs, because a stream delivers items before it ends."""
        if label.untrusted:
            self.reads(tool)
        else:
            self.seen.note_input(value)

    def reads(self, tool: str) -> None:
        """Records that text that others wrote has reached the program."""
        if len(self.read) < _MOST_TOOLS:
            self.read[tool] = None
        if self._shares and len(self.seen.carried) < _MOST_TOOLS:
            self.seen.carried[tool] = None
        if self._is_remote:
            self.expose()

    def replayed(self, path: str, sequence: int, tool: Tool | None, value: object, output: object, text: str) -> None:
        """Records a call whose reply is on record, so that no guard sees it."""
        label = _UNKNOWN if tool is None else self.flow.label(path, tool)
        self.calls(path, label, value)
        self.returned(path, sequence, label, output, text)

    def returned(self, tool: str, sequence: int, label: FlowLabel, value: object, text: str) -> None:
        """Records the output of a call, as a value and as JSON."""
        if label.untrusted:
            self.seen.keep(_Output(tool, sequence, text))
        else:
            self.seen.trust(value)

    def shows(self, value: object) -> None:
        """Records a value that goes back to the model: a result, console output, an error.

        The words of the program and of persons cannot instruct the model, nor can a few numbers.
        """
        if self.read.keys() <= self.seen.exposed.keys():
            return
        for count, atom in enumerate(_atoms(value)):
            if count > _MOST_ATOMS or not self._is_harmless(atom):
                self.expose()
                return

    def _is_harmless(self, atom: Atom) -> bool:
        if isinstance(atom, int | float):
            self._digits -= atom.bit_length() // 3 + 1 if isinstance(atom, int) else 17
            return self._digits >= 0
        if isinstance(atom, bytes):
            return not atom
        text = _lowered(atom).strip()
        if len(text) < _SHORTEST:
            self._short -= len(text)
            return self._short >= 0
        return self._affords(self.words.chars + self.seen.persons.chars) and (
            self.words.contain(text) or self.seen.persons.contain(text)
        )

    def _affords(self, work: int) -> bool:
        """Counts characters to search. False once the program has caused too many."""
        self._work -= work
        return self._work >= 0

    def expose(self) -> None:
        """Records that the model has seen the results that the program has read."""
        for tool in list(self.read)[: _MOST_TOOLS - len(self.seen.exposed)]:
            self.seen.exposed[tool] = None

    def allow(self, tool: str, doubts: Iterable[Doubt]) -> None:
        """Allows the destinations of these doubts for the rest of the session."""
        for each in doubts:
            if each.parameter is not None and each.destination is not None:
                self.seen.allow(tool, each.parameter, each.destination)

    def doubts(self, path: str, tool: Tool, label: FlowLabel, value: object) -> tuple[Doubt, ...]:
        """Returns the reasons why a person has to look at a call; none if it can go on."""
        if not label.sends and not label.changes:
            return ()
        doubts: list[Doubt] = []
        if self.read and not self._names(path):
            doubts.append(Doubt(text=f"the program computed the name of this tool, and has read {_tools(self.read)}"))
        sent = False
        for name in _destinations(tool, label, value):
            for each in _at(value, name):
                for atom in _atoms(each, flags=True):  # True is account 1
                    text = _text(atom)
                    sent = sent or bool(text.strip())
                    doubts += self._doubts_of(path, label, name, text)
                    if len(doubts) >= _MOST_DOUBTS:
                        return tuple(doubts)
        if label.changes and not sent and not self.is_clean and (reason := self._unasked(value)):
            doubts.append(reason)
        return tuple(doubts)

    def _names(self, path: str) -> bool:
        """True if the program's source refers to the tool, or to its namespace, and has the tool's name as a word."""
        if self.references is None:
            return False
        named = [each.path for each in self.references.named if path == each.path or path.startswith(f"{each.path}.")]
        if path in named or not named:
            return path in named or not self.references.computed
        return re.search(rf"(?<!\w){re.escape(path.rpartition('.')[2])}(?!\w)", self._source) is not None

    def _doubts_of(self, path: str, label: FlowLabel, name: str, text: str) -> Iterator[Doubt]:
        if not text.strip():
            return
        whole = _lowered(text).strip()
        if whole in self.seen.trusted or (path, name, whole) in self.seen.allowed:
            return
        parts = _parts(text) or [whole]
        if all(self._explains(path, label, name, part) for part in parts):
            return
        exposed = "" if self.is_clean else f"; the model has read {_tools(self.seen.exposed)}"
        origin = self.seen.origin(text.strip())
        yield Doubt(
            text=f"{name} = {_shown(text)}: no person named it, and {origin}{exposed}",
            parameter=name,
            destination=whole,
            origin=origin,
        )

    def _explains(self, path: str, label: FlowLabel, name: str, part: str) -> bool:
        return bool(
            (label.known and _is_known(part, label.known))
            or part in self.seen.trusted
            or (path, name, part) in self.seen.allowed
            or self._is_named(self.seen.persons, part)
            or (self.is_clean and self._is_named(self.words, part))
        )

    def _is_named(self, words: _Words, part: str) -> bool:
        return self._affords(words.work(part)) and words.name(part)

    def _unasked(self, value: object) -> Doubt | None:
        """Returns the doubt about a change in an exposed session, unless a person wrote all the texts in it."""
        texts = [text for atom in _atoms(_values(value)) if len(text := _lowered(_text(atom)).strip()) >= _SHORTEST]
        unnamed = next((text for text in texts if not self._is_asked_for(text)), None)
        if texts and unnamed is None:
            return None
        origin = None if unnamed is None else self.seen.origin(unnamed)
        what = "this change" if unnamed is None else f"{_shown(unnamed)}; {origin}"
        return Doubt(
            text=f"the model has read {_tools(self.seen.exposed)}, and no person asked for {what}", origin=origin
        )

    def _is_asked_for(self, text: str) -> bool:
        persons = self.seen.persons
        return text in self.seen.trusted or (self._affords(persons.chars) and persons.say(text))


def _values(value: object) -> object:
    """Returns the values of an input. Names of parameters identify nothing."""
    return list(cast("Mapping[object, object]", value).values()) if isinstance(value, Mapping) else value


def _destinations(tool: Tool, label: FlowLabel, value: object) -> Iterable[str]:
    """Returns the parameters to look at: those of the label, and members that the tool's schema does not list, which
    can be other spellings of them."""
    if not label.sends or not isinstance(value, Mapping):
        return label.sends
    properties = (tool.input_schema or {}).get("properties")
    if not isinstance(properties, dict) or not properties:
        return label.sends
    listed = cast("dict[object, object]", properties)
    others = [str(name) for name in cast("Mapping[object, object]", value) if name not in listed]
    return (*label.sends, *(name for name in others if name not in label.sends)) if others else label.sends


def _formats(schema: JsonSchema | None) -> tuple[str, ...]:
    """Returns parameters whose declared format is an address."""
    properties: Any = (schema or {}).get("properties")
    if not isinstance(properties, dict):
        return ()
    named = cast("dict[str, Any]", properties)
    return tuple(name for name, each in named.items() if _is_address(each))


def _is_address(schema: Any, depth: int = 3) -> bool:
    if not isinstance(schema, dict) or depth == 0:
        return False
    members = cast("dict[str, Any]", schema)
    inner = [members.get("items"), *(members.get("anyOf") or ()), *(members.get("oneOf") or ())]
    return members.get("format") in _DESTINATION_FORMATS or any(_is_address(each, depth - 1) for each in inner)


class _Forgotten:
    """Sessions whose state was dropped: a Bloom filter of fixed size, which never misses one. As it fills up, it takes
    more and more new sessions for dropped ones, which only asks more."""

    _BITS = 1 << 23

    def __init__(self) -> None:
        self._bits = bytearray()

    def add(self, key: _Key) -> None:
        if not self._bits:
            self._bits = bytearray(self._BITS // 8)
        for place in self._places(key):
            self._bits[place >> 3] |= 1 << (place & 7)

    def __contains__(self, key: _Key) -> bool:
        return bool(self._bits) and all(self._bits[place >> 3] >> (place & 7) & 1 for place in self._places(key))

    def _places(self, key: _Key) -> list[int]:
        digest = blake2b(repr(key).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        return [int.from_bytes(digest[at : at + 4], "big") % self._BITS for at in (0, 4, 8, 12)]


LOST = "(unknown: its state was lost)"
"""Stands for the tools that a session has read whose state was lost."""


class DataFlow:
    """Data flow of all sessions of one Corral.

    A session is one of a user of an organization. Programs without a `session_id` share the exposure of their user and
    what files and variables can carry, but no texts of persons. Beyond 64 MB in all, or 10,000 sessions, the state of
    the least recently used ones is dropped, and they count as exposed.
    """

    def __init__(self, policy: Policy, store: SessionStore | None = None) -> None:
        self._policy = policy
        self.store = store
        self._sessions: OrderedDict[_Key, Seen] = OrderedDict()
        self._forgotten = _Forgotten()
        self._begun = 0
        self._labels: WeakKeyDictionary[Tool, dict[str, FlowLabel]] = WeakKeyDictionary()
        self._digest = ""
        self._is_active = False

    @property
    def is_active(self) -> bool:
        """True if a file that is enforced has labels."""
        if self._digest != self._policy.digest:
            self._digest, self._labels = self._policy.digest, WeakKeyDictionary()
            documents = [each.document for each in self._policy.rule_sets if not each.observes]
            self._is_active = any(document.label for document in documents)
        return self._is_active

    def label(self, path: str, tool: Tool) -> FlowLabel:
        """Returns the label of a tool: anything that a file or `@tool` says holds, the most restrictive first.

        Without a label it is conservative: results are untrusted, parameters with the format of an address are
        destinations, and a tool that is not read-only and has none changes something. So does any tool whose server is
        not trusted to say that it does not.
        """
        if not self.is_active:
            return _UNKNOWN
        cached = self._labels.setdefault(tool, {})
        if (label := cached.get(path)) is None:
            label = cached[path] = self._new_label(path, tool)
        return label

    def _new_label(self, path: str, tool: Tool) -> FlowLabel:
        # a server chooses its tools' other names, so labels of these only add questions
        labels = self._policy.labels(path)
        others = [label for name in names_of(path, tool)[1:] for label in self._policy.labels(name)]
        untrusted = _any(
            [tool.untrusted, *(each.untrusted for each in labels), *(each.untrusted or None for each in others)]
        )
        changes = _any([tool.changes, *(each.changes for each in labels), *(each.changes or None for each in others)])
        sends = [*tool.sends, *(name for each in labels for name in each.sends)] or _formats(tool.input_schema)
        if changes is None:
            changes = not tool.trusted_hints or not (tool.read_only or sends)
        return FlowLabel(
            untrusted=untrusted is not False,
            sends=tuple(dict.fromkeys([*sends, *(name for each in others for name in each.sends)])),
            changes=changes,
            known=tuple(dict.fromkeys([*tool.known, *(known for each in labels for known in each.known)])),
        )

    def begin(
        self,
        context: ExecutionContext,
        source: str | None,
        asked: Sequence[str] = (),
        *,
        shares: bool = False,
        continues: bool = False,
    ) -> ProgramFlow | None:
        """Begins an execution. `asked` are the texts that persons wrote in its conversation so far.

        `shares`: the session's programs share files or variables. `continues`: it began earlier, perhaps on another
        host. Without a `source` the program runs elsewhere, so whatever it reads is taken to reach a model. Returns
        None if no data is followed.
        """
        if not self.is_active:
            return None
        conversation: Transcript = context.local.get(TRANSCRIPT, Transcript)()
        asked = (*conversation.asked, *asked)
        key = context.organization_id, context.user_id, context.session_id
        session = self._sessions.get(key)
        is_new = session is None
        if session is None:
            session = self._sessions[key] = Seen()
        # earlier messages of a conversation that is unknown here: its state is on another host, or was lost
        is_lost = continues or key in self._forgotten or len(asked) > 1
        if context.session_id is None:
            if is_lost and not session.exposed:
                session.exposed[LOST] = None
        elif is_new and self.store is not None and source is not None:
            session.is_lost = is_lost  # unless it is in the store
        elif is_new and (is_lost or self.store is not None):
            session.exposed[LOST] = None
        self._sessions.move_to_end(key)
        for name in conversation.read:
            if len(session.exposed) < _MOST_TOOLS and self._is_untrusted(name):
                session.exposed[name] = None
        seen = session
        if context.session_id is None:
            seen = Seen()
            seen.exposed, seen.carried = session.exposed, session.carried
        seen.persons.add(*asked)
        self._evict()
        return ProgramFlow(self, key, seen, session, source, shares=shares)

    def _is_untrusted(self, name: str) -> bool:
        """True if a tool of the model, which programs cannot call, can return text that others wrote."""
        return _any(label.untrusted for label in self._policy.labels(name)) is not False

    def _evict(self) -> None:
        if len(self._sessions) > _MOST_SESSIONS:
            self._drop()
        self._begun += 1
        if self._begun % _COUNT_EVERY == 0:
            held = [each.held for each in self._sessions.values()]
            total = sum(held)
            for chars in held:
                if total <= _ALL_CHARS or len(self._sessions) == 1:
                    break
                total -= chars
                self._drop()

    def _drop(self) -> None:
        key, _ = self._sessions.popitem(last=False)
        self._forgotten.add(key)
