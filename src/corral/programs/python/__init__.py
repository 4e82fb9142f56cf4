"""Makes Python from models runnable."""
