"""Starts the launcher. This file is run by path; `launcher.py` is imported, so that Python caches its bytecode."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.append(__file__.rpartition("/")[0])  # last, so that no module there replaces one of a library
    __import__("launcher").start(int(sys.argv[1]), int(sys.argv[2]))
