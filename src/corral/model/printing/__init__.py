"""Prints shapes as TypeScript and as Python, in full and shortened."""
