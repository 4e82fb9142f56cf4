"""TypeScript to JavaScript in place: types erased, run-time syntax lowered."""
