"""Type checks of programs before they run: language servers, and rules for their diagnostics."""

from __future__ import annotations

from corral.checking.case import Case
from corral.checking.checker import Checker, Gate
from corral.checking.verdict import CheckResult, Verdict

__all__ = ["Case", "CheckResult", "Checker", "Gate", "Verdict"]
