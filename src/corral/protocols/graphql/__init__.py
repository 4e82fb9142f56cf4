"""GraphQL: a bridge, and operations of a service as tools."""
