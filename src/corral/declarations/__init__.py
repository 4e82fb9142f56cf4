"""How tools are shown to a model: declarations that it reads, and that its program is checked against."""

from __future__ import annotations

from corral.declarations.catalog import Catalog, CatalogLevel
from corral.declarations.discovery import checked_discovery, discovery_tools
from corral.declarations.python import declare_python
from corral.declarations.secrets import secret_parameters
from corral.declarations.signatures import ToolShape
from corral.declarations.typescript import declare_typescript

__all__ = [
    "Catalog",
    "CatalogLevel",
    "ToolShape",
    "checked_discovery",
    "declare_python",
    "declare_typescript",
    "discovery_tools",
    "secret_parameters",
]
