"""Drivers of other projects; none of them imports corral."""
