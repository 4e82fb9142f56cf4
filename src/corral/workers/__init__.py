"""Processes for work whose cost a text decides: parsing it, compiling its patterns, comparing it with a schema.

Such work can take minutes for a few kilobytes, and much of it holds the interpreter's lock, so that a thread does not
help. A worker is killed when its time is over, has bounded memory, and is shut in once it has imported what it needs.
"""

from corral.workers.pool import WorkerError, Workers, run_in_worker, run_in_worker_blocking

__all__ = ["WorkerError", "Workers", "run_in_worker", "run_in_worker_blocking"]
