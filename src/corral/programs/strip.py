"""TypeScript to JavaScript by erasing types in place, so that every line and column stays where it was.

What has meaning at run time and is not JavaScript (enums, namespaces, parameter properties, decorators) is left
for the engine's compiler, and said so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from tree_sitter import Node

from corral.errors import ProgramRejected
from corral.programs.edits import Edits, position_at
from corral.programs.grammar import FUNCTIONS, MAX_DEPTH, child_of_type, kind_id, parse, statements, walk

__all__ = ["Findings", "erase_types", "strip_types"]

_TRIVIA = re.compile(rb"(?:\s|\xc2\xa0|\xef\xbb\xbf|\xe2\x80[\xa8\xa9]|(?://|<!--|-->)[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_LINE_END = re.compile(rb"[\r\n]|\xe2\x80[\xa8\xa9]")
_BRACKET_LINE = re.compile(rb"[\r\n]\s*\[")
_DECLARATION_LIKE = re.compile(rb"\{|(?:async\s+)?function(?![\w$])|class(?![\w$])")
_MODIFIERS = frozenset({"accessibility_modifier", "override_modifier", "readonly"})
_POSTFIX = frozenset({"subscript_expression", "call_expression", "non_null_expression"})
_TYPE_STATEMENTS = (
    "interface_declaration",
    "type_alias_declaration",
    "ambient_declaration",
    "function_signature",
    "abstract_method_signature",
    "method_signature",
    "index_signature",
)


@dataclass(slots=True)
class Findings:
    """What the walk met besides types."""

    needs_compiler: bool = False
    """Whether something is left that only the engine's compiler can turn into JavaScript."""
    returns: bool = False
    """Whether a `return` stands outside every function."""
    imports: list[Node] = field(default_factory=list[Node])
    """Every import declaration that loads something."""
    exports: list[Node] = field(default_factory=list[Node])
    """Every export that is not of a type."""
    import_calls: list[Node] = field(default_factory=list[Node])
    """The word `import` of every `import(…)`."""
    import_metas: list[Node] = field(default_factory=list[Node])
    """The word `import` of every `import.meta`."""


def strip_types(source: str) -> str:
    """The JavaScript of a TypeScript source, each token where it stood.

    Raises ProgramRejected for a source that is not TypeScript or that holds more than types to erase.
    """
    text = source.encode()
    root = parse(text).root_node
    edits = Edits(text)
    if root.has_error:
        raise ProgramRejected("The source is not valid TypeScript.")
    if erase_types(root, edits).needs_compiler:
        raise ProgramRejected("The source holds enums, namespaces, parameter properties or decorators.")
    return edits.apply()[0].decode()


def erase_types(root: Node, edits: Edits) -> Findings:
    """Adds the edits that erase every type under `root`. Raises ProgramRejected over MAX_DEPTH levels.

    In a tree with errors nothing is erased, since what looks like a type there may be none.
    """
    eraser = _Eraser(root, edits)
    handlers = _OTHER_HANDLERS if root.has_error else _HANDLERS
    cursor = root.walk()
    depth = 0
    functions: list[int] = []
    while (node := cursor.node) is not None:
        kind = node.kind_id
        handler = handlers.get(kind)
        descend = handler is None or handler(eraser, node)
        if kind == _RETURN and not functions:
            eraser.found.returns = True
        if descend and cursor.goto_first_child():
            depth += 1
            if kind in _FUNCTION_KINDS:
                functions.append(depth)
            if depth > MAX_DEPTH:
                place = position_at(edits.text, node.start_byte)
                message = f"The program is nested too deeply at line {place.line}, column {place.column}."
                raise ProgramRejected(message, line=place.line, column=place.column)
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return eraser.found
            if functions and functions[-1] == depth:
                functions.pop()
            depth -= 1
    return eraser.found


class _Eraser:
    """One handler per kind of node; each says whether the walk should go on inside the node."""

    def __init__(self, root: Node, edits: Edits) -> None:
        self.found = Findings()
        self._root = root
        self._edits = edits
        self._text = edits.text

    def erase(self, node: Node) -> bool:
        if self._runs_on([node]):
            return self.compiled(node)
        self._blank(node.start_byte, node.end_byte)
        return False

    def erase_statement(self, node: Node) -> bool:
        self._edits.blank(node.start_byte, node.end_byte, first=b";")
        return False

    def annotation(self, node: Node) -> bool:
        mark = node.start_byte - 1
        while self._text[mark : mark + 1].isspace():
            mark -= 1
        if self._text[mark : mark + 1] in (b"!", b"?"):
            self._edits.blank(mark, mark + 1)
        return self.erase(node)

    def assertion(self, node: Node) -> bool:
        operator, end = child_of_type(node, "as", "satisfies"), self._assertion_end(node)
        if operator is None or end is None:
            return self.compiled(node)
        self._blank(operator.start_byte, end)
        return True

    def non_null(self, node: Node) -> bool:
        self._blank(node.end_byte - 1, node.end_byte)
        return True

    def cast(self, node: Node) -> bool:
        """`<T>x` becomes `(   x)`: parenthesised, so that an object literal or a line end is safe behind it."""
        type_end = node.children[0].end_byte
        self._edits.wrap(type_end, node.end_byte, b"", b")")
        self._edits.blank(node.start_byte, type_end, first=b"(")
        return True

    def parameter(self, node: Node) -> bool:
        children = node.children
        if any(child.type in _MODIFIERS for child in children):
            self.found.needs_compiler = True
            return True
        if children[0].type == "this":
            following = node.next_sibling
            end = following.end_byte if following is not None and following.type == "," else node.end_byte
            self._edits.blank(node.start_byte, end)
            return False
        if mark := child_of_type(node, "?"):
            self._edits.blank(mark.start_byte, mark.end_byte)
        return True

    def arrow(self, node: Node) -> bool:
        """Keeps a line end out of `async (…) =>`, where JavaScript allows none and TypeScript allows types."""
        parameters = node.child_by_field_name("parameters")
        if parameters is None:
            return True
        generics = node.child_by_field_name("type_parameters")
        if generics is not None and self._breaks_line(generics.start_byte, parameters.start_byte):
            self._edits.blank(generics.start_byte, generics.end_byte, first=b"(")
            self._edits.blank(parameters.start_byte, parameters.start_byte + 1)
        result = node.child_by_field_name("return_type")
        if result is not None and self._breaks_line(parameters.end_byte, result.end_byte):
            self._edits.blank(parameters.end_byte - 1, parameters.end_byte)
            self._edits.blank(result.start_byte, result.end_byte, last=b")")
        return True

    def field(self, node: Node) -> bool:
        types = {child.type for child in node.children}
        if types & {"declare", "abstract"}:
            return self.erase_statement(node)
        self._modifiers(node)
        if "=" not in types and (annotation := node.child_by_field_name("type")) is not None:
            self._edits.blank(annotation.start_byte, annotation.end_byte, first=b";")
        return True

    def method(self, node: Node) -> bool:
        self._modifiers(node)
        return True

    def abstract_class(self, node: Node) -> bool:
        if word := child_of_type(node, "abstract"):
            self._edits.blank(word.start_byte, word.end_byte)
        return True

    def import_statement(self, node: Node) -> bool:
        if child_of_type(node, "type", "typeof"):
            return self.erase_statement(node)
        self.found.imports.append(node)
        return True

    def export_statement(self, node: Node) -> bool:
        declared = node.child_by_field_name("declaration")
        only_types = (
            node.children[1].text == b"type"
            or (declared is not None and (declared.type in _TYPE_STATEMENTS or _only_types(declared)))
            or [child.type for child in node.children[:3]] == ["export", "as", "namespace"]
        )
        if only_types:
            return self.erase_statement(node)
        self.found.exports.append(node)
        return True

    def specifier(self, node: Node) -> bool:
        if node.children[0].type != "type" or node.child_count == 1:
            return False
        following = node.next_sibling
        end = following.end_byte if following is not None and following.type == "," else node.end_byte
        self._edits.blank(node.start_byte, end)
        return False

    def namespace(self, node: Node) -> bool:
        if _only_types(node):
            return self.erase_statement(node)
        return self.compiled(node)

    def compiled(self, _: Node) -> bool:
        self.found.needs_compiler = True
        return True

    def tagged_generic(self, node: Node) -> bool:
        """``tag<T>`…` `` reaches us as two comparisons; no comparison with a template makes sense."""
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if left is not None and right is not None and right.type == "template_string":
            operators = [child.type for child in (*left.children, *node.children) if child.type in ("<", ">")]
            self.found.needs_compiler |= operators == ["<", ">"]
        return True

    def expression_statement(self, node: Node) -> bool:
        """Parenthesises an expression that JavaScript would read as a block or declaration."""
        expression = node.children[0]
        if _DECLARATION_LIKE.match(self._text, expression.start_byte) and expression.type != "internal_module":
            self._edits.wrap(expression.start_byte, expression.end_byte, b"(", b")")
        return True

    def import_call(self, node: Node) -> bool:
        self.found.import_calls.append(node)
        return True

    def meta_property(self, node: Node) -> bool:
        if node.children[0].type == "import":
            self.found.import_metas.append(node.children[0])
        return False

    def _assertion_end(self, node: Node) -> int | None:
        """Where the type of an assertion ends, or None if the parser ended it where TypeScript would not.

        It takes the `.C` of `as a.b.C` for a property, and the `| C` of `as a.b.C | D` for an operator.
        """
        if self._runs_on(node.children[1:]):
            return None
        parent = node.parent
        while parent is not None and parent.type == "member_expression" and parent.children[0] == node:
            node, parent = parent, parent.parent
        if parent is None or parent.children[0] != node:
            return node.end_byte
        operator = parent.children[1].type if parent.type == "binary_expression" else ""
        return None if parent.type in _POSTFIX or operator in ("|", "&") else node.end_byte

    def _modifiers(self, member: Node) -> None:
        """Blanks the modifiers and marks of a class member; a `;` keeps it apart from the member before."""
        children = member.children
        for child in children:
            if child.type in _MODIFIERS:
                first = b";" if child == children[0] else b""
                self._edits.blank(child.start_byte, child.end_byte, first=first)
            elif child.type in ("?", "!"):
                self._edits.blank(child.start_byte, child.end_byte)

    def _blank(self, start: int, end: int) -> None:
        self._edits.blank(start, end, first=b";" if self._ends_statement(end) else b"")

    def _ends_statement(self, end: int) -> bool:
        """Whether what ends here ends a statement that, once blanked, would run on into the next line."""
        trivia = _TRIVIA.match(self._text, end)
        following = trivia.end() if trivia else end
        if self._text[following : following + 1] not in (b"(", b"[", b"`", b"*"):
            return False
        if not self._breaks_line(end, following):
            return False
        node = self._root.descendant_for_byte_range(following, following + 1)
        while node is not None and node.start_byte == following:
            if node.type in ("expression_statement", "public_field_definition", "method_definition"):
                return True
            node = node.parent
        return False

    def _runs_on(self, types: Sequence[Node]) -> bool:
        """Whether the parser took a `[` on a new line for a part of a type; TypeScript begins a statement there."""
        if not _BRACKET_LINE.search(self._text, types[0].start_byte, types[-1].end_byte):
            return False
        return any(
            each.type in ("array_type", "lookup_type")
            and self._breaks_line(each.children[0].end_byte, each.children[1].start_byte)
            for part in types
            for each in chain([part], walk(part))
        )

    def _breaks_line(self, start: int, end: int) -> bool:
        return _LINE_END.search(self._text, start, end) is not None


def _only_types(node: Node) -> bool:
    """Whether a namespace declares nothing that exists at run time."""
    pending = [node]
    while pending:
        found = pending.pop()
        if found.type == "expression_statement" and found.children[0].type == "internal_module":
            found = found.children[0]
        if found.type in ("internal_module", "module"):
            body = found.child_by_field_name("body")
            pending += statements(body) if body is not None else []
        elif found.type == "export_statement":
            declared = found.child_by_field_name("declaration")
            if declared is None:
                return False
            pending.append(declared)
        elif found.type not in _TYPE_STATEMENTS:
            return False
    return True


_Handler = Callable[[_Eraser, Node], bool]

_OTHER_HANDLERS: dict[int, _Handler] = {
    kind_id("import"): _Eraser.import_call,
    kind_id("meta_property"): _Eraser.meta_property,
    kind_id("import_statement"): _Eraser.import_statement,
    kind_id("import_alias"): _Eraser.import_statement,
    kind_id("export_statement"): _Eraser.export_statement,
}

_HANDLERS: dict[int, _Handler] = _OTHER_HANDLERS | {
    **{kind_id(kind): _Eraser.erase_statement for kind in _TYPE_STATEMENTS},
    kind_id("type_annotation"): _Eraser.annotation,
    kind_id("asserts_annotation"): _Eraser.erase,
    kind_id("type_predicate_annotation"): _Eraser.erase,
    kind_id("type_parameters"): _Eraser.erase,
    kind_id("type_arguments"): _Eraser.erase,
    kind_id("implements_clause"): _Eraser.erase,
    kind_id("as_expression"): _Eraser.assertion,
    kind_id("satisfies_expression"): _Eraser.assertion,
    kind_id("non_null_expression"): _Eraser.non_null,
    kind_id("type_assertion"): _Eraser.cast,
    kind_id("required_parameter"): _Eraser.parameter,
    kind_id("optional_parameter"): _Eraser.parameter,
    kind_id("arrow_function"): _Eraser.arrow,
    kind_id("public_field_definition"): _Eraser.field,
    kind_id("method_definition"): _Eraser.method,
    kind_id("abstract_class_declaration"): _Eraser.abstract_class,
    kind_id("import_specifier"): _Eraser.specifier,
    kind_id("export_specifier"): _Eraser.specifier,
    kind_id("internal_module"): _Eraser.namespace,
    kind_id("module"): _Eraser.namespace,
    kind_id("enum_declaration"): _Eraser.compiled,
    kind_id("decorator"): _Eraser.compiled,
    kind_id("binary_expression"): _Eraser.tagged_generic,
    kind_id("expression_statement"): _Eraser.expression_statement,
}

_RETURN = kind_id("return_statement")
_FUNCTION_KINDS = frozenset(map(kind_id, FUNCTIONS))
