"""Shells on computers of services."""
