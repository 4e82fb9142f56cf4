"""Benchmarks: medians, and ratios to a floor measured in the same run."""
