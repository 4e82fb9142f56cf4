"""Declarations of tools: models read them, and programs are checked against them."""

from __future__ import annotations

from corral.model.catalog import Catalog, CatalogLevel
from corral.model.discovery import checked_discovery, discovery_tools
from corral.model.learnt import LearntResults, LearntTool
from corral.model.model_tools import ModelTool
from corral.model.printing.printers import declare_tools
from corral.model.printing.python import declare_python
from corral.model.printing.signatures import ToolShape
from corral.model.printing.typescript import declare_typescript
from corral.model.secret_parameters import secret_parameters

__all__ = [
    "Catalog",
    "CatalogLevel",
    "LearntResults",
    "LearntTool",
    "ModelTool",
    "ToolShape",
    "checked_discovery",
    "declare_python",
    "declare_tools",
    "declare_typescript",
    "discovery_tools",
    "secret_parameters",
]
