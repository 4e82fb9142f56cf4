"""The proxy through which commands reach the network."""
