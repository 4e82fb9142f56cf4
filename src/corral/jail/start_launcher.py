"""Starts the launcher. Run by path; the rest, `launcher.py`, is imported, so that Python keeps its bytecode."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.append(__file__.rpartition("/")[0])  # last: no name there takes the place of a library's
    __import__("launcher").start(int(sys.argv[1]), int(sys.argv[2]))
