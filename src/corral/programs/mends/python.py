"""Repairs of Python: names of tools, conventions of other frameworks, imports of tools from imaginary modules."""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Sequence

from tree_sitter import Node

from corral.programs.edits import Edits
from corral.programs.mends.base import Mender, asynchronous
from corral.programs.mends.names import ToolNames
from corral.programs.mends.origins import Origins
from corral.programs.python.awaits import add_await, is_given_to_loop, lacks_await, may_await
from corral.programs.python.functions import TOOLS, is_generator
from corral.programs.python.imports import imported_by, replace_line
from corral.programs.python.names import Names, TooMuch, dotted_path
from corral.programs.python.repairs import LINE_END as LINE_END
from corral.programs.syntax.parsing import TooLongToParse, ancestors, arguments_of, enclosing, is_a, part, text_of
from corral.programs.syntax.python import FUNCTIONS, finder, parse
from corral.texts import TypedText

WORDS = frozenset({"console", "functions", "default_api", "call_tool", "callTool", "help", *TOOLS})
"""Names that programs use in other frameworks."""
SIGN = re.compile(
    r"import|\.[A-Za-z_]\w*+\s*+(?![\w(.])"
    r"|(?m:^([ \t]*+)def\b[^\n]*+\n(?:(?>\1[ \t][^\n]*+|[ \t]*+)\n)*?\1[ \t][^\n]*?\bawait\b)"
)
"""An import, an attribute that is read and not called, or an `await` in a function that is not async."""
_HOLDERS = (*TOOLS, "functions", "default_api")
_BRIDGES = ("call_tool", "callTool")
_CONSOLE = frozenset(f"console.{level}" for level in ("log", "info", "warn", "error", "debug"))
_LITERALS = frozenset({"string", "concatenated_string", "integer", "float"})
_CALLS = finder("(call) @call")
_AWAITS = finder("(await) @await")
_ATTRIBUTES = finder("(attribute) @attribute")
_MAX_ATTRIBUTES = 500
_OBJECTS = re.compile(rb"\bclass\b|namedtuple|SimpleNamespace|dataclass|NamedTuple")
"""Code that defines or creates the program's own objects, which can be mixed with results."""
_METHODS = frozenset(dir(dict))
_IMPORTS = finder("[(import_statement) (import_from_statement)] @import")


def mends_of(typed: TypedText, names: ToolNames, edits: Edits) -> list[str]:
    """Adds the edits of all certain repairs. Returns a message for each."""
    try:
        root = parse(typed.text).root_node
        mender = _Mender(Names(root, typed.text), names, edits)
        for node in _IMPORTS(root).get("import", ()):
            mender.look_at_import(node)
        for node in _CALLS(root).get("call", ()):
            mender.look_at_call(node)
        mender.make_async(_AWAITS(root).get("await", ()))
        own = _OBJECTS.search(typed.text) is not None
        for node in () if own else _ATTRIBUTES(root).get("attribute", ())[:_MAX_ATTRIBUTES]:
            mender.look_at_attribute(node)
    except (TooLongToParse, TooMuch):
        return []
    return mender.mends


class _Mender(Mender):
    def __init__(self, names: Names, tools: ToolNames, edits: Edits) -> None:
        super().__init__(tools, edits)
        self._names = names
        self._origins = Origins(names, annotated=True)
        self._imported: set[str] = set()
        """Names whose imports were removed."""
        self._free: dict[str, bool] = {}
        """True for names that the program does not bind."""
        self._has_keys = False
        """True once an attribute was interpreted as a key."""
        self._waiting: list[Node] = []
        """Calls to await in functions that are not async."""
        self._imports_all = False
        """True if `import *` of another module could bind any name."""

    def _is_free(self, word: str) -> bool:
        if word not in self._free:
            self._free[word] = not any(each.binds for each in self._names.of(word))
        return word in self._imported or self._free[word]

    def look_at_call(self, call: Node) -> None:
        callee = part(call, "function")
        path = dotted_path(callee)
        if callee is None or not path or "\n" in text_of(callee):
            return
        root, _, rest = path.partition(".")
        if path in _CONSOLE and self._is_free(root):
            self._interpret(callee, path, "print")
            return
        if path in _BRIDGES and self._is_free(root):
            self._bridge(call, callee)
            return
        if path == "help" and self._is_free(root):
            self._help(call, callee)
            return
        if root in _HOLDERS and self._is_free(root):
            tool = self._tools.resolve(rest)
        elif self._is_free(root) and not self._imports_all and not hasattr(builtins, root):
            tool = self._tools.resolve(path)
        elif rest.partition(".")[0] in TOOLS and self._is_parameter(root):
            tool = self._tools.resolve(rest.partition(".")[2])
        else:
            return
        new = f"{root if root in TOOLS else 'tools'}.{tool}"
        if tool is None:
            return
        if new != path:
            self._interpret(callee, path, new)
        self._input(call, tool)
        self._await(call, new)

    def _input(self, call: Node, path: str) -> None:
        """Repairs a sole required member passed by position, and members that differ only in case and underscores."""
        passed = arguments_of(call)
        keys: dict[str, Node] = {}
        if len(passed) == 1 and passed[0].type in _LITERALS and (sole := self._tools.sole_member(path)) is not None:
            self._edits.wrap(passed[0].start_byte, passed[0].end_byte, f"{sole}=".encode(), b"")
            self._tell(f"The argument of `tools.{path}` was interpreted as `{sole}`: write `{sole}=…`.")
        for each in passed[0].named_children if len(passed) == 1 and passed[0].type == "dictionary" else passed:
            if each.type == "keyword_argument" and (name := part(each, "name")) is not None:
                keys[text_of(name)] = name
            elif each.type == "pair" and (key := part(each, "key")) is not None and key.type == "string":
                inner = [part for part in key.named_children if part.type == "string_content"]
                keys.update({text_of(part): part for part in inner[:1]})
        for word, node in keys.items():
            if (member := self._tools.resolve_member(path, word, keys)) is not None:
                self._edits.replace(node.start_byte, node.end_byte, member.encode())
                self._tell(f"`{word}` was interpreted as `{member}` of `tools.{path}`.")

    def look_at_attribute(self, attribute: Node) -> None:
        """Repairs `order.total` on a result, which is a dict."""
        owner, name = part(attribute, "object"), part(attribute, "attribute")
        above = attribute.parent
        if owner is None or name is None or above is None or text_of(name) in _METHODS:
            return
        is_read = attribute not in (part(above, "left"), part(above, "function"))
        quote = _quote_within(attribute)
        if not is_read or quote is None or above.type == "delete_statement":
            return
        origin = self._origins.of(owner)
        if origin is None or not self._tools.has_member(origin.path, origin.steps, text_of(name)):
            return
        key = f"[{quote}{text_of(name)}{quote}]"
        self._edits.replace(owner.end_byte, name.end_byte, key.encode())
        if not self._has_keys:
            self._tell(
                f"`{text_of(attribute)}` was interpreted as `{text_of(owner)}{key}`, and so on: results are dicts."
            )
        self._has_keys = True

    def _await(self, call: Node, shown: str) -> None:
        if not lacks_await(call, self._names):
            return
        if may_await(call):
            add_await(call, self._edits)
            self._tell(f"`await` was added before `{shown}(...)`.")
        else:
            self._waiting.append(call)

    def make_async(self, awaits: Sequence[Node]) -> None:
        """Makes functions async that have to await, and awaits all their calls."""
        waiting = (*self._waiting, *(each for each in awaits if not may_await(each)))
        change = asynchronous(waiting, self._calls_of, FUNCTIONS)
        for function in change.functions:
            self._edits.insert(function.start_byte, b"async ")
            self._tell(f"`{text_of(part(function, 'name'))}` was made async, and its calls are awaited.")
        for call in (*change.calls, *(each for each in change.expressions if each.type == "call")):
            add_await(call, self._edits)

    def _calls_of(self, function: Node) -> list[Node] | None:
        """Returns the calls to await if a function becomes async; None if it is used otherwise."""
        name, owner = part(function, "name"), function.parent
        if owner is None or function.type != "function_definition" or is_generator(function):
            return None
        if owner.type == "decorated_definition" or is_a(owner.parent, "class_definition"):
            return None
        word = text_of(name)
        occurrences = self._names.of(word)
        uses = [each for each in occurrences if each.node != name]
        if any(each.binds for each in uses) or self._names.is_declared_elsewhere(word):
            return None
        owners = [(each.node, each.node.parent) for each in uses]
        calls = [above for each, above in owners if above is not None and each == part(above, "function")]
        if len(calls) != len(uses) or any(enclosing(call, ("parameters",)) is not None for call in calls):
            return None
        return [call for call in calls if not is_given_to_loop(call)]

    def _is_parameter(self, word: str) -> bool:
        """True if a name is only bound as a parameter, and is not `self`."""
        bound = [each.node.parent for each in self._names.of(word) if each.binds]
        kinds = ("parameters", "typed_parameter", "default_parameter", "lambda_parameters")
        return word != "self" and bool(bound) and all(each is not None and each.type in kinds for each in bound)

    def _help(self, call: Node, callee: Node) -> None:
        """Repairs `help(tools.x)`, which prints the declaration."""
        passed = arguments_of(call)
        root, _, rest = dotted_path(passed[0] if len(passed) == 1 else None).partition(".")
        path = self._tools.resolve(rest) if root in TOOLS and rest else None
        if path is None:
            return
        self._edits.replace(callee.start_byte, call.end_byte, f'print(await tools.describe("{path}"))'.encode())
        self._tell(f'`help(tools.{path})` was interpreted as `print(await tools.describe("{path}"))`.')

    def look_at_import(self, node: Node) -> None:
        """Repairs `from functions import get_order`, `import default_api` and `from functions import *`."""
        imported = imported_by(node)
        home = imported[0].module if imported else ""
        top = home.partition(".")[0]
        bound: list[str] = []
        if not imported:
            return
        if imported[0].name == "*" and top not in _HOLDERS:
            self._imports_all = True
            return
        if imported[0].name is None:
            if len(imported) != 1 or home not in _HOLDERS[2:]:
                return
            if imported[0].alias is None:
                self._imported.add(home)
            else:
                bound.append(f"{imported[0].alias} = tools")
        elif top in sys.stdlib_module_names or top in TOOLS:
            return
        for each in imported:
            if each.name is not None and each.name != "*":
                path = self._tools.imported(home.rpartition(".")[2], each.name, is_home=top in _HOLDERS)
                if path is None:
                    return
                bound.append(f"{each.alias or each.name} = tools.{path}")
        replace_line(self._edits, node.start_byte, node.end_byte, "; ".join(bound) or "pass")
        self._tell(f"The import of `{home}` was replaced: the tools are the global `tools`.")


def _quote_within(node: Node) -> str | None:
    """Returns a quote that the f-strings around a node do not use."""
    used = {text_of(above)[-1:] for above in ancestors(node) if above.type == "string"}
    return next((each for each in "\"'" if each not in used), None)
