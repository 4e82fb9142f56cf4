"""YAML as OpenAPI wants it: the JSON ruleset, so that `no`, `on` and dates are texts; merges are bounded."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, cast

import yaml
from yaml import CollectionEndEvent, CollectionStartEvent, MappingNode, SequenceNode, YAMLError, load, parse  # pyright: ignore[reportUnknownVariableType]

_MAX_LEVELS = 200
_MAX_EVENTS = 500_000
"""Reading them takes three seconds; Airflow's document, which has 460 kB, has 42,000."""
_MAX_MERGED = 100_000


def load_yaml(text: str) -> Any:
    """Raises ValueError if it is not YAML, nested too deeply, or more than it seems."""
    try:
        _require_flat(text)
        return load(text, _Loader)  # noqa: S506 - a safe loader
    except YAMLError as error:
        raise ValueError(str(error)) from error


_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""LibYAML's loader, where PyYAML was built with it."""


def _require_flat(text: str) -> None:
    """LibYAML's loader recurses without a bound, in C; its parser does not."""
    level = 0
    for number, event in enumerate(cast("Iterable[object]", parse(text, _SafeLoader))):
        if number >= _MAX_EVENTS:
            raise ValueError("it has too many parts; as JSON it may have more")
        if isinstance(event, CollectionStartEvent):
            level += 1
        elif isinstance(event, CollectionEndEvent):
            level -= 1
        if level > _MAX_LEVELS:
            raise ValueError("it is nested too deeply")


class _Loader(_SafeLoader):
    yaml_implicit_resolvers = {}  # noqa: RUF012

    _merged = 0

    def flatten_mapping(self, node: MappingNode) -> None:
        """Counts what merges bring before it is copied: they can multiply."""
        for key, value in cast("list[tuple[Any, Any]]", node.value):
            if key.tag != "tag:yaml.org,2002:merge":
                continue
            merged = value.value if isinstance(value, SequenceNode) else [value]
            for each in merged:
                if isinstance(each, MappingNode) and each is not node:
                    self.flatten_mapping(each)
                    self._merged += len(each.value)
                if self._merged > _MAX_MERGED:
                    raise ValueError("its merge keys bring too much")
        super().flatten_mapping(node)  # pyright: ignore[reportUnknownMemberType]


for _tag, _pattern, _first in (
    ("bool", r"true|false", "tf"),
    ("null", r"null|~|", ["n", "~", ""]),
    ("int", r"-?(0|[1-9][0-9]*)", "-0123456789"),
    ("float", r"-?(0|[1-9][0-9]*)(\.[0-9]*)?([eE][-+]?[0-9]+)?", "-0123456789"),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), list(_first))
