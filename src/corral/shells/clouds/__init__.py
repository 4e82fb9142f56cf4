"""Shells on cloud services."""
