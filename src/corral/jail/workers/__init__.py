"""Worker processes for work of input-dependent cost: parsing, compiling patterns, validating against a schema.

Such work can take minutes for a few kilobytes, and much of it holds the interpreter's lock, so that a thread does not
help. A worker is killed when its time is up, has limited memory, and is locked down once it has imported its modules.
"""

from corral.jail.workers.pool import WorkerError, Workers, run_bounded, run_in_worker, run_in_worker_blocking

__all__ = ["WorkerError", "Workers", "run_bounded", "run_in_worker", "run_in_worker_blocking"]
