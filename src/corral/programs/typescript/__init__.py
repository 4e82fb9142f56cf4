"""TypeScript as models write it, made runnable."""
