"""What cannot run here is refused, or fails, with what to do instead."""

from __future__ import annotations

import pytest

from corral import Corral
from corral.egress import Network
from corral.errors import ProgramRejected
from corral.programs import prepare_python

TYPESCRIPT = [
    "const o = await tools.get({ id: 1 });\nreturn o.status;",
    "const users = await tools.list({});\nconsole.log(users.map((u) => u.name));",
    "```\nlet n: number = 1;\nfor (const x of [1, 2]) { n += x; }\nn\n```",
    "function f(a: string) {\n  return a.length;\n}\nf('a')",
    "interface A { a: string }\nconst a: A = { a: 'b' };\na",
    "// The total.\nvar total = 0;\ntotal",
]
NO_TYPESCRIPT = [
    "x = [1, 2",
    "if x\n    print(1)",
    "total = 0;\nfor x in y print(x)",
    "const = 1\nconst +",
]


@pytest.mark.parametrize("source", TYPESCRIPT)
def test_a_program_in_typescript_is_told_the_language(source: str) -> None:
    with pytest.raises(ProgramRejected, match="This is TypeScript; programs here are in Python"):
        prepare_python(source)


@pytest.mark.parametrize("source", NO_TYPESCRIPT)
def test_python_that_is_broken_is_not_taken_for_typescript(source: str) -> None:
    assert prepare_python(source).code.strip() == source


INSTEAD = {
    "open('/tmp/x.txt')": "call a tool that reads or writes",
    "import subprocess\nsubprocess.run(['ls'])": "or start processes: call a tool",
    "import socket\nsocket.create_connection(('127.0.0.1', 9))": "Programs cannot access the network",
    "import requests": "Programs cannot access the network",
    "def ask():\n    return input()\nask()": "programs have no terminal",
}


def test_what_the_jail_refuses_says_what_to_do_instead() -> None:
    with Corral(tools=[], sandbox="cpython", check=False) as corral:
        errors = {source: corral.sync.execute(source, language="python").error for source in INSTEAD}
        own = corral.sync.execute("raise FileNotFoundError('no such order')", language="python").error
    missing = {source: each for source, each in errors.items() if each is None or INSTEAD[source] not in each.message}
    assert missing == {}
    assert own is not None
    assert own.message == "no such order"


def test_with_a_network_a_library_that_is_not_there_has_a_way_to_send_requests() -> None:
    network = Network(allow=["https://api.example.com"])
    with Corral(tools=[], sandbox="cpython", check=False, network=network) as corral:
        error = corral.sync.execute("import requests", language="python").error
    assert error is not None
    assert error.message.endswith("programs may import the standard library. Send requests with `urllib.request`.")
