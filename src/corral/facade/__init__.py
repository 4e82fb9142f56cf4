"""The parts of `Corral`: its lifetime, running programs, and answering questions about tools and programs."""

from __future__ import annotations

__all__: list[str] = []
