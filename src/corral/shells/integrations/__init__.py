"""Shells as the tools that models were trained on, and as tools of frameworks; one module for each provider."""
