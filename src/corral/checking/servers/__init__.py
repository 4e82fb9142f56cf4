"""Language servers: discovery, startup and requests."""
