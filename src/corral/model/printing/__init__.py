"""Shapes printed as TypeScript and as Python, whole and shortened."""
