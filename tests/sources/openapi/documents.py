"""Documents of real services, from packages of npm."""

from __future__ import annotations

import gzip
import json
from functools import cache
from typing import Any

from tests.foreign import npm_folder

__all__ = ["EXAMPLES", "github", "kubernetes"]

EXAMPLES = npm_folder("@readme/oas-examples")
"""Small documents about one feature each, in JSON and YAML."""
_GITHUB = npm_folder("@octokit/openapi") / "generated" / "api.github.com.json"


@cache
def github() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(_GITHUB.read_bytes())
    return document


@cache
def kubernetes() -> dict[str, Any]:
    """The document in Swagger 2.0 of Kubernetes 1.13."""
    packed = npm_folder("kubernetes-client") / "lib" / "specs" / "swagger-1.13.json.gz"
    document: dict[str, Any] = json.loads(gzip.decompress(packed.read_bytes()))
    return document
