"""Check of TypeScript programs."""
