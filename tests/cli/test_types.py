"""`corral types`, and what `corral` says of itself."""

from __future__ import annotations

from importlib.metadata import version

from tests.cli.terminal import Here, Project


def test_declarations_are_printed_as_a_model_is_shown_them(here: Here) -> None:
    done = here.main("types", "--tools", "app.tools", "--language", "typescript")
    assert "The weather now." in done.stdout
    assert "get_weather" in done.stdout
    assert "city: string" in done.stdout
    assert (done.stderr, done.returncode) == ("", 0)


def test_within_a_budget_as_much_is_printed_as_there_is_room_for(here: Here) -> None:
    tools = "\n".join(f"@tool\ndef look_up_{number}(key: str) -> str:\n    return key" for number in range(200))
    here.write("many.py", f"from corral import tool\n{tools}")
    done = here.main("types", "--tools", "many", "--budget", "1000")
    assert "look_up_199" in done.stdout
    assert "tools.search" in done.stdout
    assert "key: string" not in done.stdout
    assert (len(done.stdout) <= 4_000, done.stderr, done.returncode) == (True, "", 0)


def test_a_budget_for_nothing_is_wrong_usage(here: Here) -> None:
    done = here.main("types", "--tools", "app.tools", "--budget", "10")
    assert done.stderr == "error: budget_tokens=10 is too small; set at least 500\n"
    assert (done.stdout, done.returncode) == ("", 2)


def test_declarations_need_tools(here: Here) -> None:
    done = here.main("types")
    assert "there are no tools; pass --tools PLACE or --mcp-config FILE" in done.stderr
    assert done.returncode == 2


def test_what_a_module_prints_is_no_declaration(project: Project) -> None:
    project.write("loud.py", 'print("loading")\nfrom app.tools import get_weather\n')
    done = project.corral("types", "--tools", "loud")
    assert "loading" not in done.stdout
    assert done.stderr == "loading\n"


def test_the_version_is_that_of_the_package(here: Here) -> None:
    assert here.main("--version").stdout == f"corral {version('corral')}\n"


def test_help_has_examples_and_every_limit(here: Here) -> None:
    assert "corral run program.ts --tools app.tools" in here.main("--help").stdout
    assert "default: 4000000" in here.main("run", "--help").stdout


def test_documents_for_generators_of_clients_have_the_tools_of_the_scopes(here: Here) -> None:
    here.write(
        "scoped.py",
        "from corral import tool\n"
        "@tool(read_only=True)\ndef sky(city: str) -> str:\n    return city\n"
        "@tool(scopes={'admin'})\ndef close(city: str) -> str:\n    return city\n",
    )
    everything = here.main("types", "--tools", "scoped", "--client", "graphql").stdout
    assert "sky(city: String!): String" in everything
    assert "close(city: String!): String" in everything
    assert "close(" not in here.main("types", "--tools", "scoped", "--client", "graphql", "--scope", "x").stdout
    document = here.main("types", "--tools", "scoped", "--client", "openapi", "--scope", "admin").stdout
    assert "/tools/close" in document
    proto = here.main("types", "--tools", "scoped", "--client", "proto", "--scope", "x").stdout
    assert "rpc sky(.corral.tools.skyRequest)" in proto
    assert "rpc close(" not in proto


def test_options_without_an_effect_are_refused(here: Here) -> None:
    wrong = {
        ("--scope", "x"): "error: --scope has no effect without --client; leave it out, or add --client\n",
        ("--client", "proto", "--budget", "9"): "error: --budget has no effect with --client; leave one of them out\n",
        ("--client", "trpc", "--language", "python"): (
            "error: --language has no effect with --client; leave one of them out\n"
        ),
    }
    for options, message in wrong.items():
        done = here.main("types", "--tools", "app.tools", *options)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", message)
