"""Jails of commands: their tiers, limits and network."""
