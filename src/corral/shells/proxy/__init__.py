"""Proxy through which commands reach the network."""
