"""Loggers with safe records: text from a guest, server, document or engine cannot forge a line."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from contextlib import suppress

_MAX_CHARS = 10_000
"""Maximum characters of an argument. Larger than an audit event, which is logged if its sink failed."""
_TRACEBACK_CHARS = 20_000
_INDENT = "    | "


def get_logger(name: str) -> logging.Logger:
    """Returns the named logger. Arguments of its records are escaped to one line and shortened. Tracebacks are
    indented, so that none of their lines looks like a log record."""
    logger = logging.getLogger(name)
    logger.addFilter(_FIT)
    return logger


def safe_child(parent: logging.Logger, name: str) -> logging.Logger:
    """Returns a child logger for code that can put hostile text into messages: each message becomes one line."""
    logger = parent.getChild(name)
    logger.addFilter(_FIT_WHOLE)
    return logger


def _escape_unprintable(text: str) -> str:
    """Escapes characters that end a line, control a terminal or reorder its text."""
    return text if text.isprintable() else "".join(each if each.isprintable() else _escape(each) for each in text)


class Lines:
    """Text of several lines, each indented in the log."""

    def __init__(self, text: str, most_chars: int = 1_000_000) -> None:
        self._text = text
        self._most_chars = most_chars

    def __str__(self) -> str:
        lines = _shortened(self._text, self._most_chars).split("\n")
        return "\n".join(f"{_INDENT}{'	'.join(map(_escape_unprintable, line.split('	')))}" for line in lines)


class _Shown:
    """Object whose `str` and `repr` are safe in a log."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return _fit(str(self._value))

    def __repr__(self) -> str:
        return _fit(repr(self._value))


class _Fit(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, Mapping):
            record.args = {name: _argument(each) for name, each in record.args.items()}
        elif record.args:
            record.args = tuple(map(_argument, record.args))
        if record.exc_info and not record.exc_text:
            text = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
            record.exc_text = str(Lines(text, _TRACEBACK_CHARS))
        return True


class _FitWhole(_Fit):
    def filter(self, record: logging.LogRecord) -> bool:
        with suppress(Exception):  # arguments do not match the message, which the handler reports
            record.msg, record.args = _fit(record.getMessage()), None
        return super().filter(record)


_FIT = _Fit()
_FIT_WHOLE = _FitWhole()


def _argument(value: object) -> object:
    if value is None or isinstance(value, int | float | Lines):
        return value
    return _fit(value) if isinstance(value, str) else _Shown(value)


def _fit(text: str) -> str:
    return _escape_unprintable(_shortened(text, _MAX_CHARS))


def _shortened(text: str, most_chars: int) -> str:
    half = most_chars // 2
    left_out = len(text) - 2 * half
    return text if left_out <= 0 else f"{text[:half]} … {left_out} characters … {text[-half:]}"


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "replace").decode()
