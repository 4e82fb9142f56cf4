"""Descriptor files as a pool, with their comments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from corral.errors import ConfigError

_STANDARD = "any source_context type api descriptor duration empty field_mask struct timestamp wrappers".split()
_MAX_CHARACTERS = 2_000


def pool_of(files: Mapping[str, FileDescriptorProto]) -> DescriptorPool:
    """Makes a pool of files, with protobuf's own files from the library.

    Raises:
        ConfigError: a file is missing, or contradicts another.
    """
    pool = DescriptorPool()
    added: set[str] = set()
    for name in _STANDARD:
        module: Any = import_module(f"google.protobuf.{name}_pb2")
        _add(pool, module.DESCRIPTOR.name, module.DESCRIPTOR.serialized_pb, added)
    waiting = [(name, iter(list(file.dependency))) for name, file in files.items()]
    waiting.reverse()
    open_files: set[str] = set()
    while waiting:
        name, dependencies = waiting[-1]
        if name in added:
            waiting.pop()
            continue
        open_files.add(name)
        needed = next((each for each in dependencies if each not in added), None)
        if needed is None:
            _add(pool, name, files[name].SerializeToString(), added)
            waiting.pop()
        elif needed not in files or needed in open_files:
            raise ConfigError(f"the descriptors of {name[:200]!r} need {needed[:200]!r}, which is missing")
        else:
            waiting.append((needed, iter(list(files[needed].dependency))))
    return pool


def _add(pool: DescriptorPool, name: str, data: bytes, added: set[str]) -> None:
    try:
        pool.AddSerializedFile(data)
    except TypeError as error:
        raise ConfigError(f"the descriptors of {name[:200]!r} cannot be used: {error}") from None
    added.add(name)


class Comments:
    """Comments of files, by the full name of the described element."""

    def __init__(self, files: Iterable[FileDescriptorProto]) -> None:
        self._texts: dict[str, str] = {}
        for file in files:
            comments = {
                tuple(each.path): each.leading_comments or each.trailing_comments
                for each in file.source_code_info.location
            }
            if not comments:
                continue
            package = f"{file.package}." if file.package else ""
            for number, message in enumerate(file.message_type):
                self._add_message(message, package, (4, number), comments)
            for number, service in enumerate(file.service):
                self._add(f"{package}{service.name}", (6, number), comments)
                for index, method in enumerate(service.method):
                    self._add(f"{package}{service.name}.{method.name}", (6, number, 2, index), comments)

    def of(self, full_name: str) -> str:
        """Returns the comment, or an empty text."""
        return self._texts.get(full_name, "")

    def _add_message(
        self, message: DescriptorProto, prefix: str, path: tuple[int, ...], comments: Mapping[tuple[int, ...], str]
    ) -> None:
        name = f"{prefix}{message.name}"
        self._add(name, path, comments)
        for number, field in enumerate(message.field):
            self._add(f"{name}.{field.name}", (*path, 2, number), comments)
        for number, nested in enumerate(message.nested_type):
            self._add_message(nested, f"{name}.", (*path, 3, number), comments)

    def _add(self, name: str, path: tuple[int, ...], comments: Mapping[tuple[int, ...], str]) -> None:
        if text := comments.get(path):
            lines = (line.removeprefix(" ").rstrip() for line in text[:_MAX_CHARACTERS].splitlines())
            self._texts[name] = "\n".join(lines).strip()
