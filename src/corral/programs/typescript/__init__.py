"""Makes TypeScript from models runnable."""
