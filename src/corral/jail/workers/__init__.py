"""Worker processes for work whose cost depends on input: parsing, compiling patterns, validating against schemas.

Such work can take minutes for a few kilobytes. Much of it holds the interpreter's lock, so a thread does not help. A
worker has limited memory, is killed when its time is up, and is locked down once it has imported its modules.
"""

from corral.jail.workers.pool import WorkerError, Workers, run_bounded, run_in_worker

__all__ = ["WorkerError", "Workers", "run_bounded", "run_in_worker"]
