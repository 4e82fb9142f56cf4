"""Languages of programs: facts that appear in texts for models and people.

Each room has its own table with an entry for every language: `programs.reading`, `model.printing`,
`checking.languages`, `model.model_tools`. A test finds missing entries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from corral.types import Language


@dataclass(frozen=True, kw_only=True)
class _LanguageTraits:
    """Facts about one language."""

    title: str
    """Name for people and models."""
    suffix: str
    """File name suffix."""
    sandbox: str
    """Name of its default sandbox."""
    comment: str
    """Marker of a comment that extends to the end of the line."""
    npm: bool
    """True if its programs can import npm packages."""
    environment: str
    """Expression for the environment variables."""
    parse_json: str
    """Expression that parses JSON text."""
    named_argument: Callable[[str, str], str]
    """Formats one argument of a call from its name and its literal."""


LANGUAGES: Mapping[Language, _LanguageTraits] = {
    "typescript": _LanguageTraits(
        title="TypeScript",
        suffix=".ts",
        sandbox="typescript",
        comment="//",
        npm=True,
        environment="process.env",
        parse_json="JSON.parse(...)",
        named_argument="{{ {}: {} }}".format,
    ),
    "python": _LanguageTraits(
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
    """Returns the language of a file by its name; TypeScript, which includes JavaScript, is the default."""
    for language, traits in LANGUAGES.items():
        if name.endswith(traits.suffix):
            return language
    return "typescript"
