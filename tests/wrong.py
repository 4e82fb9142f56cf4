"""What is wrong with many cases that one test goes through."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["Wrong"]


class Wrong(list[str]):
    """Failures, each with the name of its case; a test asserts at its end that there are none."""

    @contextmanager
    def case(self, name: object) -> Generator[None]:
        """Block of one case, after whose failure the next case runs."""
        try:
            yield
        except Exception as error:
            self.append(f"{name}: {error!r}")
