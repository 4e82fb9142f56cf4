"""Guests in a jail: how they are started, pooled, forked, and shared within an owner."""
