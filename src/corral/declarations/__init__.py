"""Declarations of tools: a model reads them, and its program is checked against them."""

from __future__ import annotations

from corral.declarations.catalog import Catalog, CatalogLevel
from corral.declarations.discovery import checked_discovery, discovery_tools
from corral.declarations.learnt import LearntResults, LearntTool
from corral.declarations.printing.printers import declare_tools
from corral.declarations.printing.python import declare_python
from corral.declarations.printing.signatures import ToolShape
from corral.declarations.printing.typescript import declare_typescript
from corral.declarations.secret_parameters import secret_parameters

__all__ = [
    "Catalog",
    "CatalogLevel",
    "LearntResults",
    "LearntTool",
    "ToolShape",
    "checked_discovery",
    "declare_python",
    "declare_tools",
    "declare_typescript",
    "discovery_tools",
    "secret_parameters",
]
