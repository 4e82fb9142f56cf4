"""Turns TypeScript into JavaScript in place: types are erased, and constructs with run-time effects are lowered.

Every token that runs stays on its line and, unless something is lowered, at its column.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain, takewhile
from typing import NamedTuple

from tree_sitter import Node

from corral.errors import ProgramRejected
from corral.programs.edits import Edits, Places, blanked
from corral.programs.syntax.parsing import ancestors, is_a
from corral.programs.syntax.typescript import (
    FUNCTIONS,
    MAX_DEPTH,
    child_of_type,
    kind_id,
    parse,
    statements,
    text_of,
    walk,
)
from corral.programs.typescript.lower import Lowering, is_accessor, rejected
from corral.programs.typescript.names import Names

_TRIVIA = re.compile(rb"(?:\s|\xc2\xa0|\xef\xbb\xbf|\xe2\x80[\xa8\xa9]|(?://|<!--|-->)[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_LINE_END = re.compile(rb"[\r\n]|\xe2\x80[\xa8\xa9]")
_STATEMENT_LIKE = frozenset({"expression_statement", "public_field_definition", "method_definition"})
_BRACKET_LINE = re.compile(rb"[\r\n]\s*\[")
_DECLARATION_LIKE = re.compile(rb"\{|(?:async\s+)?function(?![\w$])|class(?![\w$])")
_MODIFIERS = frozenset({"accessibility_modifier", "override_modifier", "readonly"})
_MAX_ALIASES = 50
_CLASS_KINDS = ("class_declaration", "abstract_class_declaration", "class")
_TYPE_STATEMENTS = (
    "interface_declaration type_alias_declaration ambient_declaration function_signature abstract_method_signature "
    "method_signature index_signature".split()
)


class Misread(NamedTuple):
    """Range that the parser reads differently from TypeScript.

    If `shown` replaces it, the parser reads the rest correctly. Unless `erased`, the replaced range is a type, and is
    erased like other types.
    """

    start: int
    end: int
    shown: bytes
    erased: bool


@dataclass(slots=True)
class Findings:
    """Results of the walk besides types."""

    misread: list[Misread] = field(default_factory=list[Misread])
    broken: Node | None = None
    """The first TypeScript-only node that contains a syntax error."""
    stray_await: Node | None = None
    """The first `await` in a function that is not async."""
    returns: bool = False
    """True if there is a top-level `return`."""
    imports: list[Node] = field(default_factory=list[Node])
    """Every import declaration that loads a module."""
    exports: list[Node] = field(default_factory=list[Node])
    """Every export of a value."""
    import_calls: list[Node] = field(default_factory=list[Node])
    """The word `import` of every `import(…)`."""
    import_metas: list[Node] = field(default_factory=list[Node])
    """The word `import` of every `import.meta`."""


def strip_types(source: str) -> str:
    """Erases the types of a TypeScript source, with each token at its position.

    Raises ProgramRejected for a source that is not TypeScript, or that the parser misreads.
    """
    text = source.encode()
    root = parse(text).root_node
    edits = Edits(text)
    if root.has_error or erase_types(root, edits, Names.avoiding(text)).misread:
        raise ProgramRejected("The source is not valid TypeScript.")
    return edits.apply()[0].decode()


def erase_types(root: Node, edits: Edits, names: Names) -> Findings:
    """Adds the edits that turn `root` into JavaScript. Raises ProgramRejected beyond MAX_DEPTH levels.

    TypeScript-only nodes with syntax errors are left unchanged.
    """
    eraser = _Eraser(root, edits, names)
    cursor = root.walk()
    has_error = root.has_error
    depth = 0
    functions: list[tuple[int, bool]] = []
    while (node := cursor.node) is not None:
        kind = node.kind_id
        handler = _HANDLERS.get(kind)
        descend = handler is None or (has_error and eraser.leaves(node)) or handler(eraser, node)
        if kind == _RETURN and not functions:
            eraser.findings.returns = True
        elif kind == _AWAIT and functions and not functions[-1][1]:
            eraser.findings.stray_await = eraser.findings.stray_await or node
        if descend and cursor.goto_first_child():
            depth += 1
            if kind in _FUNCTION_KINDS:
                functions.append((depth, kind in _STATIC_BLOCK or child_of_type(node, "async") is not None))
            if depth > MAX_DEPTH:
                raise Places(edits.text).rejected("The program is nested too deeply at {place}.", node.start_byte)
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return eraser.findings
            if functions and functions[-1][0] == depth:
                functions.pop()
            depth -= 1
    return eraser.findings


class _Eraser:
    """One handler per kind of node; each returns True if the walk should enter the node."""

    def __init__(self, root: Node, edits: Edits, names: Names) -> None:
        self.findings = Findings()
        self._root = root
        self._edits = edits
        self._text = edits.text
        self._names = names
        self._lowering = Lowering(root, edits, names)
        self._aliases = 0

    def leaves(self, node: Node) -> bool:
        """True if a node contains a syntax error and must be left unchanged."""
        if not node.has_error or node.kind_id not in _ONLY_TYPESCRIPT:
            return False
        self.findings.broken = self.findings.broken or node
        return True

    def erase(self, node: Node) -> bool:
        if (line_end := self._runs_on([node])) is not None:
            return self._end_at(node.start_byte, line_end)
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
        operator = child_of_type(node, "as", "satisfies")
        if operator is None:
            return True
        if (line_end := self._runs_on(node.children[1:])) is not None:
            return self._end_at(operator.start_byte, line_end)
        end, parent = self._assertion_end(node)
        if self._is_read_on(end) and not self._ends_statement(end):
            return self._end_at(operator.start_byte, end)
        joined = parent is not None and parent.children[1].type in ("|", "&")
        if joined and b"." in self._text[operator.end_byte : end]:
            shown = self._text[operator.end_byte : end].replace(b".", b"_")
            self.findings.misread.append(Misread(operator.end_byte, end, shown, erased=False))
            return True
        self._blank(operator.start_byte, end)
        return True

    def _end_at(self, start: int, end: int) -> bool:
        """Records that a statement ends after this type, where the parser reads on."""
        shown = blanked(self._text[start:end].decode()).encode()
        self.findings.misread.append(Misread(start, end, b";" + shown[1:], erased=True))
        return True

    def non_null(self, node: Node) -> bool:
        self._blank(node.end_byte - 1, node.end_byte)
        return True

    def cast(self, node: Node) -> bool:
        """Turns `<T>x` into `(   x)`, in parentheses so that an object literal or a line end can follow."""
        type_end = node.children[0].end_byte
        self._edits.wrap(type_end, node.end_byte, b"", b")")
        self._edits.blank(node.start_byte, type_end, first=b"(")
        return True

    def parameter(self, node: Node) -> bool:
        if node.children[0].type == "this":
            return self._blank_listed(node)
        if mark := child_of_type(node, "?"):
            self._edits.blank(mark.start_byte, mark.end_byte)
        return True

    def arrow(self, node: Node) -> bool:
        """Removes line ends in `async (…) =>`, which JavaScript forbids and TypeScript's types can contain."""
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
        if is_accessor(node, self._text):
            self._lowering.accessor(node)
        self._modifiers(node)
        if "=" not in types and (annotation := node.child_by_field_name("type")) is not None:
            self._edits.blank(annotation.start_byte, annotation.end_byte, first=b";")
        return True

    def method(self, node: Node) -> bool:
        self._modifiers(node)
        parameters = node.child_by_field_name("parameters")
        children = parameters.named_children if parameters is not None else ()
        properties = [each for each in children if child_of_type(each, *_MODIFIERS) is not None]
        if properties:
            self._lowering.parameter_properties(node, properties)
        return True

    def class_(self, node: Node) -> bool:
        if word := child_of_type(node, "abstract"):
            self._edits.blank(word.start_byte, word.end_byte)
        return True

    def decorator(self, node: Node) -> bool:
        problem = "Decorators are not supported. Call the function instead, as in `const cached = cache(load)`"
        raise rejected(problem, self._text, node)

    def import_statement(self, node: Node) -> bool:
        if child_of_type(node, "type", "typeof"):
            return self.erase_statement(node)
        self.findings.imports.append(node)
        return True

    def import_alias(self, node: Node) -> bool:
        """Lowers `import a = B.C`, or erases it as a type if nothing reads `a`."""
        exported = node.parent is not None and node.parent.type == "export_statement"
        if child_of_type(node, "type") is not None or not (exported or self._is_read(node.named_children[0])):
            return self.erase_statement(node)
        word = node.children[0]
        self._edits.replace(word.start_byte, word.end_byte, b"const ")
        return False

    def export_statement(self, node: Node) -> bool:
        declared = node.child_by_field_name("declaration")
        only_types = (
            node.children[1].text == b"type"
            or (declared is not None and (declared.type in _TYPE_STATEMENTS or _only_types(declared)))
            or [child.type for child in node.children[:3]] == ["export", "as", "namespace"]
        )
        if only_types:
            return self.erase_statement(node)
        self.findings.exports.append(node)
        self._lowering.export(node)
        return True

    def specifier(self, node: Node) -> bool:
        if node.children[0].type != "type" or node.child_count == 1:
            return False
        return self._blank_listed(node)

    def _blank_listed(self, node: Node) -> bool:
        """Blanks an element of a list, with the comma after it."""
        following = node.next_sibling
        end = following.end_byte if following is not None and following.type == "," else node.end_byte
        self._edits.blank(node.start_byte, end)
        return False

    def namespace(self, node: Node) -> bool:
        if _only_types(node):
            return self.erase_statement(node)
        self._lowering.namespace(node)
        return True

    def enum(self, node: Node) -> bool:
        self._lowering.enum(node)
        return True

    def tagged_generic(self, node: Node) -> bool:
        """Erases types in ``tag<T>`…` ``, which is parsed as two comparisons: a comparison with a template makes no
        sense."""
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if left is not None and right is not None and right.type == "template_string":
            operators = [child for child in (*left.children, *node.children) if child.type in ("<", ">")]
            if [each.type for each in operators] == ["<", ">"]:
                start, end = operators[0].start_byte, operators[1].end_byte
                shown = blanked(self._text[start:end].decode()).encode()
                self.findings.misread.append(Misread(start, end, shown, erased=True))
        return True

    def expression_statement(self, node: Node) -> bool:
        """Parenthesizes an expression that JavaScript would read as a block or declaration."""
        expression = node.children[0]
        if _DECLARATION_LIKE.match(self._text, expression.start_byte) and expression.type != "internal_module":
            self._edits.wrap(expression.start_byte, expression.end_byte, b"(", b")")
        return True

    def import_call(self, node: Node) -> bool:
        self.findings.import_calls.append(node)
        return True

    def meta_property(self, node: Node) -> bool:
        if node.children[0].type == "import":
            self.findings.import_metas.append(node.children[0])
        return False

    def _is_read(self, name: Node) -> bool:
        """True if a name occurs outside types and its declaration. Beyond `_MAX_ALIASES` names this is assumed."""
        self._aliases += 1
        if self._aliases > _MAX_ALIASES:
            return True
        for match in re.finditer(rb"(?<![\w$.])%s(?![\w$])" % re.escape(text_of(name).encode()), self._text):
            if match.start() != name.start_byte:
                node = self._root.descendant_for_byte_range(*match.span())
                is_value = is_a(node, "identifier", "shorthand_property_identifier")
                if is_value and not is_a(node.parent, "nested_type_identifier"):
                    return True
        return False

    def _assertion_end(self, node: Node) -> tuple[int, Node | None]:
        """Returns the end of an assertion's type, and the larger node in which the parser put the assertion.

        The parser reads the `.C` of `as a.b.C` as a property, and then the `| D` of `as a.b.C | D` as an operator.
        """
        parent = node.parent
        while is_a(parent, "member_expression") and parent.children[0] == node:
            node, parent = parent, parent.parent
        leads = is_a(parent, "binary_expression") and parent.children[0] == node
        return node.end_byte, parent if leads else None

    def _modifiers(self, member: Node) -> None:
        """Blanks the modifiers and marks of a class member; a `;` separates it from the previous member."""
        children = member.children
        for child in children:
            if child.type in _MODIFIERS:
                first = b";" if child == children[0] else b""
                self._edits.blank(child.start_byte, child.end_byte, first=first)
            elif child.type in ("?", "!"):
                self._edits.blank(child.start_byte, child.end_byte)

    def _blank(self, start: int, end: int) -> None:
        self._edits.blank(start, end, first=b";" if self._ends_statement(end) else b"")

    def _is_read_on(self, end: int) -> bool:
        """True if blanking the text that ends here would join its line with the next."""
        following = self._following(end)
        opens = self._text[following : following + 1] in (b"(", b"[", b"`", b"*")
        return opens and self._breaks_line(end, following)

    def _following(self, end: int) -> int:
        trivia = _TRIVIA.match(self._text, end)
        return trivia.end() if trivia else end

    def _ends_statement(self, end: int) -> bool:
        """True if blanking the text that ends here would join its statement with the next line."""
        if not self._is_read_on(end):
            return False
        following = self._following(end)
        node = self._root.descendant_for_byte_range(following, following + 1)
        around = takewhile(lambda each: each.start_byte == following, (node, *ancestors(node)) if node else ())
        return any(each.type in _STATEMENT_LIKE for each in around)

    def _runs_on(self, types: Sequence[Node]) -> int | None:
        """Returns the real end of a type that the parser extended by a new statement, a `[` on the next line."""
        if not _BRACKET_LINE.search(self._text, types[0].start_byte, types[-1].end_byte):
            return None
        ends = [
            each.children[0].end_byte
            for part in types
            for each in chain([part], walk(part))
            if each.type in ("array_type", "lookup_type")
            and self._breaks_line(each.children[0].end_byte, each.children[1].start_byte)
        ]
        return min(ends, default=None)

    def _breaks_line(self, start: int, end: int) -> bool:
        return _LINE_END.search(self._text, start, end) is not None


def _only_types(node: Node) -> bool:
    pending = [node]
    while pending:
        statement = pending.pop()
        if statement.type == "expression_statement" and statement.children[0].type == "internal_module":
            statement = statement.children[0]
        if statement.type in ("internal_module", "module"):
            body = statement.child_by_field_name("body")
            pending += statements(body) if body is not None else []
        elif statement.type == "export_statement":
            declared = statement.child_by_field_name("declaration")
            if declared is None:
                return False
            pending.append(declared)
        elif statement.type not in _TYPE_STATEMENTS:
            return False
    return True


_Handler = Callable[[_Eraser, Node], bool]

_HANDLERS: dict[int, _Handler] = {
    kind_id("import"): _Eraser.import_call,
    kind_id("meta_property"): _Eraser.meta_property,
    kind_id("decorator"): _Eraser.decorator,
    kind_id("import_statement"): _Eraser.import_statement,
    kind_id("import_alias"): _Eraser.import_alias,
    kind_id("export_statement"): _Eraser.export_statement,
    **{kind_id(kind): _Eraser.erase_statement for kind in _TYPE_STATEMENTS},
    **{kind_id(kind): _Eraser.class_ for kind in _CLASS_KINDS},
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
    kind_id("import_specifier"): _Eraser.specifier,
    kind_id("export_specifier"): _Eraser.specifier,
    kind_id("internal_module"): _Eraser.namespace,
    kind_id("module"): _Eraser.namespace,
    kind_id("enum_declaration"): _Eraser.enum,
    kind_id("binary_expression"): _Eraser.tagged_generic,
    kind_id("expression_statement"): _Eraser.expression_statement,
}

_OTHER_TYPES = (
    "type_annotation asserts_annotation type_predicate_annotation type_parameters implements_clause type_arguments "
    "type_assertion enum_declaration internal_module module".split()
)
_ONLY_TYPESCRIPT = frozenset(map(kind_id, (*_TYPE_STATEMENTS, *_OTHER_TYPES)))
_RETURN = kind_id("return_statement")
_AWAIT = kind_id("await_expression")
_STATIC_BLOCK = frozenset({kind_id("class_static_block")})
_FUNCTION_KINDS = frozenset(map(kind_id, FUNCTIONS))
