"""Code of the server of guests in WebAssembly: the engine, its baked image, and the process that serves programs."""
