"""The guest for programs in Python. Its modules know the standard library only, and each other.

They reach a sandbox as one file, one module after another, so names at their top are distinct throughout.
"""
