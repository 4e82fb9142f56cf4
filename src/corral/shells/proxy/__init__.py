"""The proxy by which commands reach the network."""
