"""Splits texts and identifiers into words for searches: lower-case, without endings."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_ADDRESS = re.compile(r"https?://\S+")
_VOWEL = re.compile(r"[aeiouy]")
_KEPT_S = ("ss", "us", "is")
_KEPT_DOUBLES = frozenset("lsz")
_WHOLE = {
    short: whole
    for short, _, whole in (
        each.partition("=")
        for each in """
    app=application config=configuration db=database dir=directory doc=document env=environment info=information
    msg=message org=organization organisation=organization repo=repository
    """.split()
    )
}


def words(text: str) -> list[str]:
    """Splits a text: `listOpen_issues2` gives list, open, issues, 2. Drops URLs and ignores accents."""
    if not text.isascii():
        decomposed = unicodedata.normalize("NFKD", text)
        text = "".join(character for character in decomposed if not unicodedata.combining(character))
    return [word.lower() for word in _WORD.findall(_ADDRESS.sub(" ", text))]


@lru_cache(maxsize=16_384)
def stem(word: str) -> str:
    """Returns the word without a plural, `-ing`, `-ed` or a final `e`: issues becomes issu, stopped becomes stop.

    Common abbreviations are expanded first.
    """
    if len(word) > 3 and word.endswith("s") and not word.endswith(_KEPT_S):
        word = word[:-1]
    word = _WHOLE.get(word, word)
    for ending in ("ing", "ed"):
        shorter = word.removesuffix(ending)
        if shorter != word and len(shorter) > 2 and _VOWEL.search(shorter) and not word.endswith("eed"):
            doubled = shorter[-1] == shorter[-2] and shorter[-1] not in _KEPT_DOUBLES
            word = shorter[:-1] if doubled else shorter
            break
    if len(word) > 3:
        word = word.removesuffix("e")
    return f"{word[:-1]}i" if len(word) > 2 and word[-1] == "y" and word[-2] not in "aeiou" else word


UNIMPORTANT = frozenset(
    """
    a all an and any are as at be by can do does for from given has have how if in into is it its of on one or
    our please some specified that the their them this to want was what when where which who with you your
    """.split()
)
"""Words to ignore in queries."""

_GROUPS = """
    create add new insert make open file register compose
    delete remove erase drop destroy discard trash bin
    update edit modify change patch set save alter
    get read fetch retrieve show view load access
    list all enumerate browse
    search find query lookup filter
    send post deliver dispatch submit
    publish post release
    run execute launch trigger start invoke
    stop cancel abort halt end terminate pause
    upload import attach put
    download export
    copy duplicate clone fork
    move transfer relocate
    reply answer respond response
    approve accept confirm
    reject decline deny
    archive hide
    restore recover undelete
    issue bug ticket defect report
    task todo
    email mail message
    mailbox inbox
    chat conversation thread
    event meeting appointment
    busy free availability
    vacation holiday absence office
    document file
    folder directory
    spreadsheet sheet table
    cell value range
    row record
    picture image photo
    video clip movie
    audio sound speech voice
    repository project
    pr pull merge
    branch ref
    comment note remark
    label tag
    user person people member account
    i me my whoami authenticated
    contact people person
    group team
    customer client
    company organization
    permission access role share
    secret credential password key
    server instance machine vm
    log history audit
    price cost amount
    invoice bill
    payment charge
    order purchase
    refund reimbursement
    language locale
    place location address
    weather forecast
    website site page url
    schedule cron
    text sentence
"""


def _synonyms() -> dict[str, frozenset[str]]:
    synonyms: dict[str, set[str]] = {}
    for line in filter(None, map(str.split, _GROUPS.splitlines())):
        group = {stem(word) for word in line}
        for each in group:
            synonyms.setdefault(each, set()).update(group - {each})
    return {word: frozenset(others) for word, others in synonyms.items()}


SYNONYMS = _synonyms()
"""Stems of synonyms, by stem."""
