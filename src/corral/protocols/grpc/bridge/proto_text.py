"""Text of a `.proto` file, for `protoc`."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, MethodOptions

from corral.bridges.base import Document
from corral.bridges.web.documents import DocumentCache
from corral.calls.grants import Grant
from corral.concurrency.threads import run_in_own_thread
from corral.protocols.grpc.bridge.schema import ToolSchema

_NAMES = {
    FieldDescriptorProto.TYPE_BOOL: "bool",
    FieldDescriptorProto.TYPE_BYTES: "bytes",
    FieldDescriptorProto.TYPE_DOUBLE: "double",
    FieldDescriptorProto.TYPE_INT64: "int64",
    FieldDescriptorProto.TYPE_STRING: "string",
}
_Path = tuple[int, ...]


async def proto_document(schemas: DocumentCache[ToolSchema], grant: Grant) -> Document:
    """Makes the `.proto` of the tools that the scopes of a grant allow, in a thread."""
    schema = await schemas.of(grant)
    content = await run_in_own_thread(lambda: proto_text(schema.file).encode(), abandon_on_cancel=True)
    return Document(content, "text/plain; charset=utf-8")


def proto_text(file: FileDescriptorProto) -> str:
    """Writes a file of the bridge's descriptors as text, with its comments."""
    comments = {tuple(each.path): each.leading_comments for each in file.source_code_info.location}
    lines = [f'syntax = "{file.syntax}";', "", f"package {file.package};", ""]
    lines += [f'import "{name}";' for name in file.dependency]
    for number, service in enumerate(file.service):
        lines += ["", f"service {service.name} {{"]
        for index, method in enumerate(service.method):
            lines += _comment(comments, (6, number, 2, index), "  ")
            reply = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
            head = f"  rpc {method.name}({method.input_type}) returns ({reply})"
            level = method.options.idempotency_level
            if level == MethodOptions.IDEMPOTENCY_UNKNOWN:
                lines.append(f"{head};")
            else:
                lines.append(f"{head} {{ option idempotency_level = {MethodOptions.IdempotencyLevel.Name(level)}; }}")
        lines.append("}")
    for number, message in enumerate(file.message_type):
        lines += ["", *_message(message, comments, (4, number), "")]
    return "\n".join(lines) + "\n"


def _message(message: DescriptorProto, comments: dict[_Path, str], path: _Path, indent: str) -> Iterator[str]:
    yield f"{indent}message {message.name} {{"
    inner = f"{indent}  "
    if message.options.deprecated_legacy_json_field_conflicts:
        yield f"{inner}option deprecated_legacy_json_field_conflicts = true;"
    entries = {each.name: each for each in message.nested_type if each.options.map_entry}
    for number, nested in enumerate(message.nested_type):
        if not nested.options.map_entry:
            yield from _message(nested, comments, (*path, 3, number), inner)
    for number, field in enumerate(message.field):
        yield from _comment(comments, (*path, 2, number), inner)
        entry = entries.get(field.type_name.rpartition(".")[2])
        if entry is not None:
            kind = f"map<string, {_type(entry.field[1])}>"
        elif field.label == FieldDescriptorProto.LABEL_REPEATED:
            kind = f"repeated {_type(field)}"
        else:
            kind = f"optional {_type(field)}"
        yield f"{inner}{kind} {field.name} = {field.number} [json_name = {_quoted(field.json_name)}];"
    yield f"{indent}}}"


def _type(field: FieldDescriptorProto) -> str:
    return field.type_name or _NAMES[field.type]


def _comment(comments: dict[_Path, str], path: _Path, indent: str) -> Iterator[str]:
    for line in comments.get(path, "").splitlines():
        yield f"{indent}//{line}".rstrip()


def _quoted(text: str) -> str:
    """Writes a string literal; bytes other than printable ASCII are escaped."""
    characters = (chr(each) if 32 <= each < 127 and each not in b'"\\' else f"\\{each:03o}" for each in text.encode())
    return f'"{"".join(characters)}"'
