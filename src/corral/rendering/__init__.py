"""Formats values and texts for people and models: shortened, escaped, without secrets."""
