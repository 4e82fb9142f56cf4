"""Policies: rules about calls as data, in TOML files that a security team can read. See docs/policy.md."""

from corral.policy.policy import Policy, PolicySource, Verdict
from corral.policy.rules import PolicyCall, names_of

__all__ = ["Policy", "PolicyCall", "PolicySource", "Verdict", "names_of"]
