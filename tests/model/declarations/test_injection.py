"""Whatever a schema's texts and names contain, they stay texts and names."""

from __future__ import annotations

import tree_sitter
import tree_sitter_typescript
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from corral.types import JsonSchema
from tests.model.declarations.compiler import Shape, declare, type_errors
from tests.work import examples

EVIL = [
    "*/ declare const evil: 1; /*",
    "*/",
    "/** */ */",
    "**//",
    "*" + "/" * 3,
    "@deprecated use evil",
    "x\n@deprecated\n@type {evil}",
    '"); evil(); ("',
    "'; evil; '",
    "`${evil}`",
    "${evil}",
    "\\",
    "\\u002a/",
    "a\\*/b",
    "\n}; declare const evil: 1; type X = {",
    "\u2028declare const evil: 1;",
    "\u2029*/",
    "\r*/ evil",
    "\x00\x07\x1b[31m\x7f\x85",
    "\u202e reversed \u2066",
    "\ud800 alone",
    "// @ts-nocheck",
    "@ts-ignore",
    "</script><!--",
    "{import('https://example.invalid/evil.ts').Evil}",
    "__proto__",
    "",
    " ",
]

PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_typescript.language_typescript()))


def schema_full_of(text: str) -> JsonSchema:
    """The text in all places where a schema has one."""
    return {
        "title": text,
        "description": text,
        "type": "object",
        "properties": {
            text: {"type": "string"},
            "described": {"type": "string", "description": text, "default": text},
            "titled": {"title": text, "type": "object", "default": {text: [text]}},
            "formatted": {"type": "string", "format": text, "pattern": text, "contentEncoding": text},
            "chosen": {"enum": [text, {text: text}]},
            "constant": {"oneOf": [{"const": text, "description": text}, {"const": 1}]},
            "referring": {"$ref": "#/$defs/" + text.replace("~", "~0").replace("/", "~1").replace("%", "%25")},
            "anchored": {"$ref": "#" + text},
            "mapped": {"type": "object", "patternProperties": {f"^{text}": {"type": "string"}, text: True}},
            "prefixed": {"type": "object", "patternProperties": {"^" + _escaped(text): {"type": "string"}}},
            "named": {"type": "object", "propertyNames": {"enum": [text]}},
        },
        "required": [text],
        "$defs": {text: {"title": text, "description": text, "type": "string"}},
    }


def _escaped(text: str) -> str:
    return "".join(character if character.isalnum() else f"\\{character}" for character in text)


def test_no_text_breaks_out_of_its_place() -> None:
    tools = {
        f"t{position}": Shape(description=text, input_schema=schema_full_of(text), output_schema=schema_full_of(text))
        for position, text in enumerate(EVIL)
    }
    text = declare(**tools)
    assert list(type_errors(text + "evil;\n")) == [text.count("\n") + 1]
    assert not any(character in text for character in "\u2028\u2029\u202e\u2066\x00\x07\x1b\x7f\x85\r")


def test_no_text_becomes_a_tag() -> None:
    text = declare(tool=Shape(description="@deprecated no\n  @internal no\nmail me@example.com, {@link x}"))
    assert "\\@deprecated no" in text
    assert "\\@internal no" in text
    assert "mail me@example.com, {@link x}" in text


ANY_TEXT = st.text(st.characters() | st.sampled_from("*/@\\`${}\"'\n\r\u2028<>;"), max_size=12)


@given(ANY_TEXT)
@settings(max_examples=examples(150), deadline=None)
def test_any_text_leaves_the_syntax_alone(text: str) -> None:
    assume(text != "abstract")  # the grammar, unlike TypeScript, does not take it for a property
    schema = schema_full_of(text)
    del schema["properties"]["mapped"], schema["properties"]["prefixed"]  # the grammar lacks escapes in template types
    declared = declare(tool=Shape(description=text, input_schema=schema))
    tree = PARSER.parse(declared.encode())
    kinds = [node.type for node in tree.root_node.children if node.type != "comment"]
    assert not tree.root_node.has_error, declared
    assert kinds[-2:] == ["ambient_declaration"] * 2
    assert set(kinds[:-2]) <= {"type_alias_declaration"}
