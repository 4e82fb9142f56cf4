"""Sandboxes whose programs run in a shell, on this machine or elsewhere."""
