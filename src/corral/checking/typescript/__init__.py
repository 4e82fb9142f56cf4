"""The check of TypeScript programs."""
