"""gRPC: a bridge, and methods of a server as tools."""
