"""Substitutes for names and methods that other languages and surroundings have."""
