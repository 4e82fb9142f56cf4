"""Jails of commands: their tiers, bounds and network."""
