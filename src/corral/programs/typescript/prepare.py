"""Makes a model's TypeScript runnable: recovers it, parses it once, erases types, and rewrites imports and value.

The result is an expression, an async function of `(load, entry)`:

- `load(specifier, unused)` returns the namespace of a module; an `unused` one can be missing. `load.meta` is the
  program's `import.meta`;
- `entry(value, plain)` calls a function with the tools, as a plain object if `plain`, and returns its result; any other
  value is returned unchanged.

The program is in a labelled block that ends with a `break` to that label. The program cannot spell the label, so a
source that closes the block and opens another one does not compile. The declaration before the `break` cannot be the
body of an unfinished `if (…)` either.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

from tree_sitter import Node, Tree

from corral.concurrency.cached_property import cached_property
from corral.errors import ProgramRejected
from corral.programs.edits import Edits, NotAwaited, Places
from corral.programs.recover import Dialect, recover, well_formed
from corral.programs.syntax import python as python_grammar
from corral.programs.syntax.parsing import PARSE_SECONDS, is_a, parsing_within, part
from corral.programs.syntax.typescript import (
    CLASSES,
    DECLARED_FUNCTIONS,
    ENTRY_NAMES,
    FUNCTION_VALUES,
    MAX_DEPTH,
    NAMESPACES,
    VARIABLES,
    bound_names,
    child_of_type,
    declaration_of,
    declared_names,
    destructures,
    first_jsx,
    first_parameter,
    imported_names,
    parse,
    statements,
    text_of,
    unwrapped,
    walk,
)
from corral.programs.typescript.lower import rejected
from corral.programs.typescript.modules import (
    COMMONJS_PREFIX,
    Entry,
    assigns_exports,
    guard_words,
    rewrite_commonjs,
    rewrite_modules,
)
from corral.programs.typescript.names import Names
from corral.programs.typescript.references import find_references
from corral.programs.typescript.strip import Findings, Misread, erase_types
from corral.programs.typescript.tool_imports import own_tools, rewrite_tool_imports
from corral.programs.typography import plain_characters, typographic
from corral.texts import PositionMap, TypedText
from corral.types import Diagnostic, Program


class Shared(NamedTuple):
    """Additions to a cell's code."""

    names: tuple[str, ...]
    script: str
    """Code before the function that is the cell."""
    first: str
    """Code before its first statement."""


def share_variables(root: Node, edits: Edits, names: Names) -> Shared:
    """Adds the edits that turn declarations into assignments to globals."""
    bound: dict[str, None] = {}
    functions: dict[str, Node] = {}
    for statement in statements(root):
        declaration = declaration_of(statement)
        own = declared_names(declaration)
        if declaration.type in VARIABLES:
            _assign(declaration, edits)
        elif declaration.type in CLASSES:
            edits.wrap(statement.start_byte, statement.end_byte, f";{own[0]} = ".encode(), b";")
        elif declaration.type in DECLARED_FUNCTIONS:
            if (before := functions.pop(own[0], None)) is not None:
                edits.blank(before.start_byte, before.end_byte, first=b";")
            functions[own[0]] = declaration
        elif declaration.type == "import_statement":
            clause = child_of_type(declaration, "import_clause")
            is_of_types = clause is None or child_of_type(declaration, "type") is not None
            own = [] if clause is None or is_of_types else imported_names(clause)
            _copy(statement, own, edits)
        elif own and (declaration.type == "enum_declaration" or _is_namespace(declaration)):
            _copy(statement, own, edits)  # merged by the code that makes them
        else:
            own = []
        bound.update(dict.fromkeys(own))
    first = ""
    for name, declaration in functions.items():
        word = part(declaration, "name") or declaration
        edits.replace(word.start_byte, word.end_byte, f"{name}{names.local}".encode())
        first += f'{name} = Object.defineProperty({name}{names.local}, "name", {{ value: "{name}" }}); '
    script = f"var {', '.join(bound)}; " if bound else ""
    return Shared(tuple(bound), script, first)


def _assign(declaration: Node, edits: Edits) -> None:
    """`const x = 1, y` becomes `(x = 1, y = void 0)`."""
    word = declaration.children[0]
    declarators = [each for each in declaration.named_children if each.type == "variable_declarator"]
    if not declarators:
        return
    edits.replace(word.start_byte, word.end_byte, b";".ljust(word.end_byte - word.start_byte))
    for each in declarators:
        if part(each, "value") is None:
            edits.wrap(each.start_byte, each.end_byte, b"", b" = void 0")
    edits.wrap(declarators[0].start_byte, declarators[-1].end_byte, b"(", b")")


def _copy(statement: Node, own: list[str], edits: Edits) -> None:
    """Copies variables that stay local to globals. Some that are imported are types, which do not exist."""
    code = "".join(f' if (typeof {name} !== "undefined") globalThis.{name} = {name};' for name in own)
    if code:
        edits.wrap(statement.start_byte, statement.end_byte, b"", f";{code}".encode())


def _is_namespace(declaration: Node) -> bool:
    inner = declaration.children[0] if declaration.type == "expression_statement" else declaration
    return inner.type in NAMESPACES and text_of(part(inner, "name"))[:1] not in ('"', "'")


_LOOPS = frozenset({"for_statement", "for_in_statement", "while_statement", "do_statement"})
_NO_EFFECT = DECLARED_FUNCTIONS.union(
    "class_declaration abstract_class_declaration interface_declaration type_alias_declaration ambient_declaration "
    "function_signature enum_declaration internal_module module import_statement import_alias empty_statement".split()
)
_OBJECT_OF_NAMES = re.compile(rb"\{\s*[\w$]+(?:\s*,\s*[\w$]+)+\s*,?\s*\}")
_TOOLS = frozenset({"tools", "codemode"})
_OF_TOOLS = re.compile(r"tools|codemode", re.IGNORECASE)
_PLAIN = re.compile(
    r"[\s:|&()\[\]<>,]*(?:(?:string|number|boolean|bigint|symbol|null|undefined|void|never|true|false|Date|URL|RegExp"
    r"|Array|ReadonlyArray|Set|Map|Promise|readonly)\b[\s|&()\[\]<>,]*)+"
)
"""Annotations that cannot describe the tools."""
_OPEN = re.compile(r"[\s:]*(?:any|unknown|object|Object|Function)\s*")
_DATA = ("data", "member")
_MEMBERS = frozenset(
    "member_expression subscript_expression non_null_expression parenthesized_expression as_expression "
    "satisfies_expression".split()
)


@dataclass(slots=True)
class Ending:
    """The end of a wrapped program."""

    code: str = ""
    """Code that runs after the last statement."""
    diagnostics: list[Diagnostic] = field(default_factory=list[Diagnostic])


def named(root: Node, entered: Sequence[Node | str | None]) -> list[Node]:
    """Returns the functions that are called with the tools; names are resolved to top-level declarations."""
    functions = dict(_named_functions([declaration_of(each) for each in statements(root)]))
    nodes = (functions.get(each) if isinstance(each, str) else each for each in entered)
    return [each for each in nodes if each is not None]


class _Program:
    """The statements of a program. A cell's functions are for later ones; only one with a usual name is called."""

    def __init__(self, root: Node, edits: Edits, names: Names, entry: Entry | None, *, is_cell: bool) -> None:
        self._entry = entry
        self._is_cell = is_cell
        self._root = root
        self._edits = edits
        self._names = names
        kept = [each for each in statements(root) if entry is None or not assigns_exports(each)]
        self._statements = [declaration_of(each) for each in kept]
        self._functions = dict(_named_functions(self._statements))
        self.entered: list[Node | str | None] = []
        """Callees that receive the tools: functions, names of functions, or None if that is known only at run time."""

    def end(self, returns: bool) -> Ending:
        """Adds the edits that make the program return its value. `returns`: it has a top-level `return`."""
        entry = self._entry
        if entry is not None and not (entry.name and self._is_called(entry.name)):
            return Ending(self._call(entry))
        last = _last_effective(self._statements)
        function = self._unused_function(last)
        if function is not None and not returns and (last is None or _has_no_value(last)):
            return Ending(self._call(Entry(function, function)))
        if last is not None and self._return_completion(last):
            return Ending(diagnostics=[] if returns else _console_remark(last, self._edits.text))
        if returns or self._root.has_error:
            return Ending()
        is_helper = self._is_cell and last is not None and bool(_named_functions([last]))
        if is_a(last, *VARIABLES) and len(declared := declared_names(last)) == 1 and not is_helper:
            return Ending(f"return {declared[0]};")
        return Ending(diagnostics=[_no_result(last, self._edits.text)])

    def _call(self, entry: Entry) -> str:
        if not entry.callable:
            return f"return {entry.value};"
        function = entry.function or self._functions.get(entry.name or "")
        if (arguments := _arguments_of(function)) is not None:
            return f"return await {entry.value}({arguments});"
        self.entered.append(entry.function or entry.name)
        return f"return await {self._names.entry}({entry.value}, {_flag(destructures(function))});"

    def _unused_function(self, last: Node | None) -> str | None:
        """Returns the function that a program of declarations should run: one with a usual name, or the last one."""
        for name in ENTRY_NAMES:
            if name in self._functions and not self._is_used(name):
                return name
        if self._is_cell:
            return None
        if last is None:
            candidates = [name for each in self._statements for name, _ in _named_functions([each])]
        else:
            candidates = [name for name, _ in _named_functions([last])]
        return candidates[-1] if candidates and not self._is_used(candidates[-1]) else None

    def _is_used(self, name: str) -> bool:
        """True if top-level code mentions a function, apart from its declaration and export."""
        named = (each for each in walk(self._root, into_functions=False) if each.type == "identifier")
        uses = (each for each in named if text_of(each) == name and not is_a(each.parent, "export_specifier"))
        return any(
            not (is_a(each.parent, "variable_declarator") and part(each.parent, "name") == each) for each in uses
        )

    def _is_called(self, name: str) -> bool:
        """True if top-level code calls a function."""
        called = (part(each, "function") for each in walk(self._root, into_functions=False))
        return any(is_a(each, "identifier") and text_of(each) == name for each in called)

    def _return_completion(self, last: Node) -> bool:
        """Puts `return` before the last expression of each branch. Returns True if there is one, or a `return`."""
        if last.type == "statement_block" and _OBJECT_OF_NAMES.fullmatch(last.text or b""):
            self._edits.wrap(last.start_byte, last.end_byte, b"return (", b")")
            return True
        has_value = False
        pending = [last]
        while pending:
            node = pending.pop()
            match node.type:
                case "expression_statement":
                    has_value |= self._return_expression(node)
                case "if_statement":
                    pending += _fields(node, "consequence", "alternative")
                case "else_clause":
                    pending += statements(node)
                case "try_statement":
                    pending += _fields(node, "body", "handler")
                case "catch_clause" | "labeled_statement":
                    pending += _fields(node, "body")
                case "statement_block":
                    inner = _last_effective(statements(node))
                    pending += [inner] if inner is not None else []
                case "return_statement" | "throw_statement":
                    has_value = True
                case _:
                    pass
        return has_value

    def _return_expression(self, statement: Node) -> bool:
        expression = next((each for each in statement.named_children if each.type != "comment"), None)
        if expression is None or _is_directive(expression) or _declares_resource(expression):
            return False
        if expression.type == "unary_expression" and expression.children[0].type == "void":
            word, called = expression.children[0], part(expression, "argument")
            if called is not None and unwrapped(called).type == "call_expression":  # the value of `void main()`
                self._edits.blank(word.start_byte, word.end_byte)
        if expression.type == "internal_module":
            return False
        value = unwrapped(expression)
        if value.type == "assignment_expression" and (assigned := part(value, "right")) is not None:
            value = unwrapped(assigned) if unwrapped(assigned).type in FUNCTION_VALUES else value
        if value.type in FUNCTION_VALUES or value.type == "identifier":
            function = value if value.type in FUNCTION_VALUES else self._functions.get(text_of(value))
            if (arguments := _arguments_of(function)) is not None:
                before, after = "return await (", f")({arguments})"
            else:
                self.entered.append(value if value.type in FUNCTION_VALUES else text_of(value))
                before, after = f"return await {self._names.entry}(", f", {_flag(destructures(function))})"
        else:
            before, after = "return await (", ")"
        self._edits.wrap(expression.start_byte, expression.end_byte, before.encode(), after.encode())
        return True


def _named_functions(declarations: Sequence[Node]) -> list[tuple[str, Node]]:
    """Returns the functions that statements declare, or bind to a variable."""
    functions: list[tuple[str, Node]] = []
    for statement in declarations:
        if statement.type in DECLARED_FUNCTIONS:
            functions.append((text_of(part(statement, "name")), statement))
        for declarator in statement.named_children if statement.type in VARIABLES else ():
            name, value = part(declarator, "name"), part(declarator, "value")
            if is_a(name, "identifier") and value is not None and unwrapped(value).type in FUNCTION_VALUES:
                functions.append((text_of(name), unwrapped(value)))
    return functions


def _last_effective(candidates: Sequence[Node]) -> Node | None:
    """Returns the last statement that has an effect or declares a variable."""
    for statement in reversed(candidates):
        inner = statement.named_children[0].type if statement.type == "expression_statement" else statement.type
        if inner not in _NO_EFFECT and inner != "export_statement":
            return statement
    return None


def _fields(node: Node, *names: str) -> list[Node]:
    return [child for name in names if (child := part(node, name)) is not None]


def _is_directive(expression: Node) -> bool:
    return expression.type == "string" and text_of(expression)[1:-1] == "use strict"


def _declares_resource(expression: Node) -> bool:
    """True for `using x = …` and `await using x = …`, which the grammar parses as assignments."""
    inner = expression.named_children[0] if expression.type == "await_expression" else expression
    return inner.type == "assignment_expression" and inner.children[0].type == "using"


def _has_no_value(statement: Node) -> bool:
    return statement.type in VARIABLES | _LOOPS or _is_console_call(statement)


def _is_console_call(statement: Node) -> bool:
    return statement.type == "expression_statement" and (statement.text or b"").startswith(b"console.")


def _console_remark(last: Node, text: bytes) -> list[Diagnostic]:
    if not _is_console_call(last):
        return []
    return [_remark("it ends with a console call, which has no value", last, text, "return <value>")]


def _no_result(last: Node | None, text: bytes) -> Diagnostic:
    if last is None:
        message = "The program has no result: it has no statement that runs. End with `return <value>`."
        return Diagnostic(severity="info", code="no_result", message=message)
    if last.type in VARIABLES:
        value = f"{{ {', '.join(declared_names(last))} }}"
        return _remark("it ends with a declaration", last, text, f"return {value}")
    what = "a loop" if last.type in _LOOPS else "a statement without a value"
    return _remark(f"it ends with {what}", last, text, "return <value>")


def _remark(what: str, node: Node, text: bytes, fix: str) -> Diagnostic:
    message = f"The program has no result: {what}. End with `{fix}`."
    return Places(text).remark("info", "no_result", message, node.start_byte)


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _arguments_of(function: Node | None) -> str | None:
    """Returns the arguments to call a function with, as code; None if it takes the tools."""
    parameter = first_parameter(function)
    if function is None or parameter is None:
        return None
    pattern, default = part(parameter, "pattern") or parameter, part(parameter, "value")
    names = set(bound_names(pattern))
    typed = part(parameter, "type")
    annotation = text_of(typed)
    if _TOOLS & names or _OF_TOOLS.search(annotation) or pattern.type not in ("identifier", "object_pattern"):
        return None
    if default is not None:
        return None if _OF_TOOLS.search(text_of(default)) else ""
    uses = list(_uses(function, names))
    if pattern.type == "object_pattern":
        defaults = [each.type == "object_assignment_pattern" for each in pattern.named_children]
        means_data = (all(defaults) and bool(defaults)) or (bool(uses) and all(each in _DATA for each in uses))
        return "{}" if means_data else None
    if _PLAIN.fullmatch(annotation):
        return ""
    signs = {"member call"} | ({"given away"} if not annotation or _OPEN.fullmatch(annotation) else set[str]())
    return None if signs & set(uses) else ""


def _uses(function: Node, names: set[str]) -> Iterator[str]:
    """Yields the ways in which a function uses its argument."""
    body = part(function, "body")
    for node in walk(body) if body is not None else ():
        if node.type == "shorthand_property_identifier" and text_of(node) in names:
            yield "data"
        if node.type != "identifier" or text_of(node) not in names or node.parent is None:
            continue
        used, owner = node, node.parent
        while owner.type in _MEMBERS and owner.named_children[0] == used and owner.parent is not None:
            used, owner = owner, owner.parent
        called = owner.type == "call_expression" and part(owner, "function") == used
        if used != node:
            yield "member call" if called else "member"
        elif owner.type in ("template_substitution", "pair", "binary_expression"):
            yield "data"
        else:
            yield "given away"


_CLOSER_OF = {"(": ")", "[": "]", "{": "}", "${": "}"}
_CLOSERS = frozenset(_CLOSER_OF.values())
_NAMES = {
    "(": "parenthesis `(`",
    "[": "bracket `[`",
    "{": "brace `{`",
    "${": "template substitution `${`",
    "`": "template literal",
}

_MAX_SKIPPED = 250
"""Maximum number of tokens that the parser skipped, because these can nest to any depth."""


class _Open(NamedTuple):
    sign: str
    offset: int


def _check_brackets(root: Node, text: bytes) -> None:
    """Raises ProgramRejected for an unmatched or unclosed bracket, template or comment.

    Also raises it if so many tokens were skipped that the depth is unknown.
    """
    opened, places = list[_Open](), Places(text)
    skipped = root.child_count if root.is_error else 0
    for node in walk(root):
        skipped += node.child_count if node.is_error else 0
        if node.child_count or node.is_missing:
            continue
        sign = (node.text or b"").decode(errors="replace") if node.is_error else node.type
        if sign == "`" and opened and opened[-1].sign == "`":
            opened.pop()
        elif sign in _NAMES:
            opened.append(_Open(sign, node.start_byte))
        elif sign in _CLOSERS:
            _close(opened, sign, places, node.start_byte)
        if len(opened) > MAX_DEPTH:
            raise places.rejected("The program is nested too deeply at {place}.", node.start_byte)
    _check_comments(root, text, places)
    if opened:
        sign, offset = opened[-1]
        close = f"`{_CLOSER_OF[sign]}`" if sign in _CLOSER_OF else "backtick"
        raise places.rejected(f"The {_NAMES[sign]} at {{place}} is never closed. Add the missing {close}.", offset)
    if skipped > _MAX_SKIPPED:
        error = next((node for node in walk(root) if node.is_error or node.is_missing), root)
        raise places.rejected("The program has a syntax error at {place} or before it.", error.start_byte)


def _close(opened: list[_Open], sign: str, places: Places, offset: int) -> None:
    if not opened:
        message = f"The `{sign}` at {{place}} closes nothing. Remove it, or add what it should close."
        raise places.rejected(message, offset)
    if _CLOSER_OF.get(opened[-1].sign) != sign:
        place = places.at(opened[-1].offset)
        where = f"the {_NAMES[opened[-1].sign]} at line {place.line}, column {place.column}"
        raise places.rejected(f"The `{sign}` at {{place}} does not close {where}.", offset)
    opened.pop()


def _check_comments(root: Node, text: bytes, places: Places) -> None:
    at = text.find(b"/*")
    while at >= 0:
        node = root.descendant_for_byte_range(at, at + 2)
        if node is None or node.child_count or node.is_error:
            raise places.rejected("The comment `/*` at {place} is never closed. Add the missing `*/`.", at)
        at = text.find(b"/*", max(at + 2, node.end_byte))


_TYPESCRIPT = {"typescript", "ts", "mts", "cts", "tsx"}
_JAVASCRIPT = {"javascript", "js", "mjs", "cjs", "jsx", "es6", "ecmascript"}
_ENGINES = {"node", "nodejs", "deno", "bun"}
_LABELS = frozenset(_TYPESCRIPT | _JAVASCRIPT | _ENGINES)
_LONE_RETURN = re.compile(r"\r(?!\n)")
_FOREIGN_SPACE = re.compile("\x85|\u180e|\u200b|\u2060".encode())
_HTML_COMMENT = re.compile(rb"<(?=!--)|--(?=>)")
"""Operators that the engine would read as a comment, unless a space after the match separates them."""
_ODD = re.compile("[\u2010-\u201f\u2212\u00d7\u00f7\uff01-\uff5e]")
"""Typographic characters that have an ASCII replacement."""
_TYPOGRAPHIC = typographic(
    r""""(?:[^"\\\n]|\\.)*+"?|'(?:[^'\\\n]|\\.)*+'?|`(?:[^`\\]|\\.)*+`?|//[^\n]*|/\*.*?(?:\*/|\Z)"""
)
_MAX_PARSED_BYTES = 500_000
"""Maximum number of bytes parsed in search of a program. Texts beyond it count as invalid."""
_MAX_ROUNDS = 3
"""Maximum number of times that a misread source is parsed again."""
_MAX_ODD = 200
_PYTHON = re.compile(
    r"^[ \t]*(?:(?:async[ \t]+)?def[ \t]+\w+[ \t]*\(|(?:from[ \t]+[\w.]+[ \t]+)?import[ \t]+\w+"
    r"|(?:if|elif|else|for|while|try|except|with|async[ \t]+(?:for|with)|class)\b[^\n{]*:[ \t]*(?:#[^\n]*)?$)"
    r"|\bprint\(|\b(?:None|True|False|not|elif|lambda)\b|\bf[\"']",
    re.MULTILINE,
)
_MAX_BYTES = 30_000
"""A longer source is not parsed again as another language."""
_REDECLARED = DECLARED_FUNCTIONS | CLASSES | VARIABLES


def prepare_typescript(source: str, bound: frozenset[str] | None = None) -> Program:
    """Returns the program in a model's answer, prepared to run. `bound`: for a cell, variables of earlier cells.

    Raises ProgramRejected, with the position in the source, if there is no valid program.
    """
    recovered = _recovered(source)
    root, findings = recovered.root, recovered.erased.findings
    edits = recovered.erased.edits.copy()
    names = recovered.names
    if findings.broken is not None:
        raise _syntax_error(findings.broken, edits.text)
    if (own := own_tools(root)) is not None:
        raise rejected("`tools` is a global; do not define it: call the tools as they are declared", edits.text, own)
    erased = len(edits.made)
    types = tuple(edits.replaced())
    redeclared = _redeclare(root, recovered.blocks, edits)
    after_redeclared = len(edits.made)
    top_level = [each for each in findings.imports if each.parent == root]
    of_tools, rewritten = rewrite_tool_imports(top_level, edits, redeclared)
    made = [*edits.made[: recovered.erased.before], *edits.made[erased:]]
    findings = replace(findings, imports=[each for each in findings.imports if each.start_byte not in rewritten])
    imports, entry = rewrite_modules(root, findings, edits, names, redeclared, types, keeps_all=bound is not None)
    rewritten_to = len(edits.made)
    commonjs = rewrite_commonjs(root, edits) if entry is None else None
    made += edits.made[rewritten_to:]
    shared = Shared((), "", "")
    if bound is not None:
        edits = Edits(edits.text, made=(*edits.made[:erased], *edits.made[after_redeclared:]))
        shared = share_variables(root, edits, names)
    body = _Program(root, edits, names, entry or commonjs, is_cell=bound is not None)
    ending = body.end(findings.returns)
    guard_words(root, edits)
    declared = COMMONJS_PREFIX if commonjs else ""
    parameters = f"{names.load}, {names.entry}"
    prefix = f'{shared.script}(async function ({parameters}) {{"use strict"; {declared}{names.label}: {{{shared.first}'
    suffix = f"\nconst {names.label} = 0; {ending.code} break {names.label}; }} }})"
    code, positions = edits.apply(prefix.encode(), suffix.encode())
    program = Program(
        language="typescript",
        source=source,
        code=code.decode(),
        positions=(positions,),
        diagnostics=(*recovered.diagnostics, *ending.diagnostics),
        imports=imports,
        references=find_references(root, edits, body.entered, of_tools),
        typed=None
        if root.has_error
        else TypedText(
            text=recovered.text,
            parsed=recovered.parsed,
            edits=tuple(made),
            entered=tuple((each.start_byte, each.end_byte) for each in named(root, body.entered)),
            types=types,
            commonjs=commonjs is not None,
            nodes=root.descendant_count,
        ),
        binds=shared.names,
    )
    if findings.stray_await is not None:
        error = _stray_await(findings.stray_await, edits.text)
        error.program = program
        raise error
    return program


def typed_typescript(typed: TypedText) -> TypedProgram:
    """Parses a program for a type checker. Raises TooLongToParse."""
    root = parse(typed.parsed).root_node
    entered = [root.named_descendant_for_byte_range(*span) for span in typed.entered]
    return TypedProgram(
        root,
        Edits(typed.text, made=typed.edits),
        typed.types,
        [each for each in entered if each is not None],
        typed.commonjs,
        Names.avoiding(typed.text).entry,
        typed.positions,
        typed.start,
        typed.unknown,
    )


class TypedProgram(NamedTuple):
    """A program, prepared for a type checker."""

    root: Node
    edits: Edits
    """Edits that every check needs."""
    types: Sequence[tuple[int, int]]
    """Erased ranges: the program's own types."""
    entered: list[Node]
    """The program's functions that are called with the tools."""
    commonjs: bool
    """True for exports in the style of CommonJS."""
    unused: str
    """A name that the program does not use."""
    positions: tuple[PositionMap, ...] = ()
    """The map back to the model's source, if that was repaired."""
    start: int = -1
    """See `TypedText`."""
    unknown: tuple[str, ...] = ()
    """See `TypedText`."""


class _Erased(NamedTuple):
    """The edits that erase a program's types, and the findings of the walk."""

    edits: Edits
    before: int
    """Number of the edits that do not erase types."""
    findings: Findings


@dataclass(frozen=True)
class _Recovered:
    """A program recovered from an answer. `blocks` are the first lines of its blocks."""

    root: Node
    text: bytes
    blocks: tuple[int, ...]
    diagnostics: list[Diagnostic]
    parsed: bytes
    """The text that was parsed."""
    misread: tuple[Misread, ...] = ()
    """Ranges that were replaced for the parser."""

    @cached_property
    def names(self) -> Names:
        """Names for added code."""
        return Names.avoiding(self.text)

    @cached_property
    def erased(self) -> _Erased:
        """Raises ProgramRejected for constructs that are nested too deeply or cannot be lowered."""
        edits = Edits(self.text)
        _blank_foreign_spaces(self.root, edits)
        _part_html_comments(self.root, edits)
        before = len(edits.made)
        for each in self.misread:
            if each.erased:
                edits.blank(each.start, each.end, first=b";" if each.shown.startswith(b";") else b"")
        return _Erased(edits, before, erase_types(self.root, edits, self.names))

    def read_again(self) -> _Recovered:
        """Parses again until the parser misreads nothing."""
        program, misread, rounds = self, list[Misread](), 0
        while more := program.erased.findings.misread:
            misread += more
            rounds += 1
            if rounds > _MAX_ROUNDS:
                raise rejected("An assertion with `as` cannot be read. Put it in parentheses", self.text, program.root)
            shown = bytearray(self.text)
            for each in misread:
                shown[each.start : each.end] = each.shown
            parsed = bytes(shown)
            program = replace(self, root=parse(parsed).root_node, parsed=parsed, misread=tuple(misread))
        return program


@parsing_within(PARSE_SECONDS)
def _recovered(source: str) -> _Recovered:
    text, diagnostics = _readable(source)
    trees = _Trees()
    recovered = recover(text, Dialect(labels=_LABELS, label="typescript", parses=trees.parses))
    text = _with_common_line_ends(recovered.text, trees.parses)
    if not trees.parses_as_it_is(text) and trees.parses(text):
        diagnostics.append(_typographic(text))
        text = _in_plain_characters(text)
    program, root = text.encode(), trees.of(text).root_node
    if root.has_error:
        _refuse_other_languages(program)
        _check_brackets(root, program)
    return _Recovered(root, program, recovered.blocks, diagnostics, program).read_again()


def _readable(source: str) -> tuple[str, list[Diagnostic]]:
    """Returns the source as valid Unicode with LF or CRLF line ends."""
    text, diagnostics = well_formed(source)
    if text.startswith("\ufeff"):
        text = " " + text[1:]
    return _LONE_RETURN.sub("\n", text) if "\r" in text else text, diagnostics


def _with_common_line_ends(text: str, parses: Callable[[str], bool]) -> str:
    """Replaces U+2028 and U+2029 with LF if the text parses only then: the parser does not end statements there."""
    if ("\u2028" in text or "\u2029" in text) and not parses(text):
        common = text.replace("\u2028", "\n").replace("\u2029", "\n")
        return common if parses(common) else text
    return text


def _has_odd_names(root: Node, text: str) -> bool:
    """True if the parser read typographic characters as part of a name."""
    seen = at = 0
    for start, _, _ in islice(plain_characters(text, _TYPOGRAPHIC), _MAX_ODD):
        at, seen = at + len(text[seen:start].encode()), start
        leaf = root.descendant_for_byte_range(at, at + 1)
        if leaf is not None and leaf.type.endswith("identifier"):
            return True
    return False


def _in_plain_characters(text: str) -> str:
    """Replaces typographic characters with ASCII of the same length."""
    plain, taken = list[str](), 0
    for start, end, new in plain_characters(text, _TYPOGRAPHIC):
        if len(new) == end - start:
            plain += (text[taken:start], new)
            taken = end
    return "".join(plain) + text[taken:]


def _typographic(text: str) -> Diagnostic:
    start = next(start for start, _, _ in plain_characters(text, _TYPOGRAPHIC))
    message = f"Typographic characters, such as {text[start]!a}, were replaced with ASCII."
    return Places(text.encode()).remark("warning", "typographic_characters", message, len(text[:start].encode()))


def _blank_foreign_spaces(root: Node, edits: Edits) -> None:
    """Blanks characters that are white space to the parser but not to the engine."""
    for match in _FOREIGN_SPACE.finditer(edits.text):
        node = root.descendant_for_byte_range(*match.span())
        if node is not None and node.child_count:
            edits.blank(*match.span())


def _part_html_comments(root: Node, edits: Edits) -> None:
    """Removes each `<!--` and `-->`, which parser and engine may read differently.

    Comments are blanked; operators are separated by a space.
    """
    blanked_to = 0
    for match in _HTML_COMMENT.finditer(edits.text):
        if match.start() < blanked_to:
            continue
        leaf = root.descendant_for_byte_range(match.start(), match.start() + 1)
        if leaf is None:
            continue
        if leaf.type == "html_comment":
            edits.blank(leaf.start_byte, leaf.end_byte)
            blanked_to = leaf.end_byte
        elif leaf.is_error or not leaf.is_named:
            edits.replace(match.end(), match.end(), b" ")


def _syntax_error(broken: Node, text: bytes) -> ProgramRejected:
    error = next((each for each in walk(broken) if each.is_error or each.is_missing), broken)
    near = f" near `{shown}`" if (shown := text_of(error)[:20].strip()) else ""
    return rejected(f"The program has a syntax error{near}", text, error)


def _stray_await(node: Node, text: bytes) -> NotAwaited:
    return Places(text).not_awaited(
        "`await` is used in a function that is not async. Make it `async (…) => …` and wait for all its calls with"
        " `await Promise.all(items.map(async (item) => …))`, or use a `for (const item of items)` loop ({place}).",
        node.start_byte,
    )


class _Trees:
    """Parses texts, each once, up to a total size."""

    def __init__(self) -> None:
        self._trees: dict[str, Tree] = {}
        self._bytes = 0

    def of(self, text: str) -> Tree:
        if text not in self._trees:
            encoded = text.encode()
            self._bytes += len(encoded)
            self._trees[text] = parse(encoded)
        return self._trees[text]

    def parses_as_it_is(self, text: str) -> bool:
        if self._bytes >= _MAX_PARSED_BYTES or (root := self.of(text).root_node).has_error:
            return False
        return _ODD.search(text) is None or not _has_odd_names(root, text)

    def parses(self, text: str) -> bool:
        """True if a text is a program, possibly after typographic characters are replaced."""
        if self.parses_as_it_is(text):
            return True
        return (
            _ODD.search(text) is not None
            and (plain := _in_plain_characters(text)) != text
            and self.parses_as_it_is(plain)
        )


def _refuse_other_languages(text: bytes) -> None:
    """Raises ProgramRejected for a text that is Python, or TypeScript with JSX."""
    if len(text) > _MAX_BYTES:
        return
    sign = _PYTHON.search(text.decode())
    if sign is not None and not python_grammar.parse(text).root_node.has_error:
        message = "This is Python. Programs here are in TypeScript: `const x = await tools.name({ … }); return x;`."
        raise Places(text).rejected(message, len(sign.string[: sign.start()].encode()))
    if (b"</" in text or b"/>" in text) and (element := first_jsx(text)) is not None:
        message = "The JSX at {place} cannot run here. Return data, not elements."
        raise Places(text).rejected(message, element.start_byte)


def _redeclare(root: Node, blocks: tuple[int, ...], edits: Edits) -> frozenset[int]:
    """Adds the edits that allow repeated declarations at the top level.

    Functions can share a name anywhere, other declarations only across `blocks`, the lines where blocks begin.
    Returns the offsets of the imports that must become variables.
    """
    declared: defaultdict[str, list[Node]] = defaultdict(list)
    for statement in statements(root):
        declaration = declaration_of(statement)
        clause = child_of_type(declaration, "import_clause")
        names = declared_names(declaration) if declaration.type in _REDECLARED else []
        if clause is not None and child_of_type(declaration, "type") is None:
            names = imported_names(clause)
        for name in names:
            declared[name].append(declaration)
    imports: set[int] = set()
    for declarations in declared.values():
        if len(declarations) == 1:
            continue
        if all(each.type in DECLARED_FUNCTIONS for each in declarations):
            for each in declarations[:-1]:
                edits.blank(each.start_byte, each.end_byte, first=b";")
        elif len({bisect_right(blocks, each.start_point.row) for each in declarations}) > 1:
            for each in declarations:
                _as_variable(each, edits)
                if each.type == "import_statement":
                    imports.add(each.start_byte)
    return frozenset(imports)


def _as_variable(declaration: Node, edits: Edits) -> None:
    if declaration.type == "lexical_declaration":
        word = declaration.children[0]
        edits.replace(word.start_byte, word.end_byte, b"var".ljust(word.end_byte - word.start_byte))
    elif declaration.type in DECLARED_FUNCTIONS | CLASSES:
        name = text_of(part(declaration, "name") or declaration)
        edits.wrap(declaration.start_byte, declaration.end_byte, f"var {name} = ".encode(), b";")
