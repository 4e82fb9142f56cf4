"""Tasks, threads, event loops and forks. Every other room uses these modules."""
