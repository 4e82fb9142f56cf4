"""Shells as the tools that models were trained on, and as tools of frameworks, in a module for each provider."""
