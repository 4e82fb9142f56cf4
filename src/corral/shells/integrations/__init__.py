"""Shells as the tools that models were trained on, and as frameworks take them; one module for each provider."""
