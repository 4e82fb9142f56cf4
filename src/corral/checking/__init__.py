"""Whether a program fits the declarations, found out before it runs: language servers, and rules on what they say."""

from __future__ import annotations

from corral.checking.case import Case
from corral.checking.check_result import CheckResult
from corral.checking.checker import Checker
from corral.checking.gate import Gate
from corral.checking.verdict import Verdict

__all__ = ["Case", "CheckResult", "Checker", "Gate", "Verdict"]
