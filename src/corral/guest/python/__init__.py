"""Guest for programs in Python. Its modules import only each other and the standard library.

They reach a sandbox as one file, one module after another, so top-level names must differ across modules.
"""
