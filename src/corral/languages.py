"""The languages of programs: facts that texts for models and people need.

Each room has one table per subject, with an entry for every language: `programs.reading`, `declarations.printing`,
`checking.languages`, `model_tools`. A test finds a table without an entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from corral.types import Language


@dataclass(frozen=True, kw_only=True)
class LanguageTraits:
    """Facts about one language, as it is written."""

    title: str
    """Name for people and models."""
    suffix: str
    """End of the names of its files."""
    sandbox: str
    """Name of the sandbox that runs it by default."""
    comment: str
    """Opening of a comment to the end of the line."""
    npm: bool
    """True if its programs import packages of npm."""
    environment: str
    """Mapping of the environment variables."""
    parse_json: str
    """Expression that parses a JSON text."""
    named_argument: Callable[[str, str], str]
    """Writes the arguments of a call with one, of its name and its literal."""


LANGUAGES: Mapping[Language, LanguageTraits] = {
    "typescript": LanguageTraits(
        title="TypeScript",
        suffix=".ts",
        sandbox="deno",
        comment="//",
        npm=True,
        environment="process.env",
        parse_json="JSON.parse(...)",
        named_argument="{{ {}: {} }}".format,
    ),
    "python": LanguageTraits(
        title="Python",
        suffix=".py",
        sandbox="python",
        comment="#",
        npm=False,
        environment="os.environ",
        parse_json="json.loads(...)",
        named_argument="{}={}".format,
    ),
}


def language_of_file(name: str) -> Language:
    """Returns the language of a file by its name; TypeScript, which JavaScript is too, where nothing else fits."""
    for language, traits in LANGUAGES.items():
        if name.endswith(traits.suffix):
            return language
    return "typescript"
