"""Sandboxes whose programs run in a shell, local or remote."""
