"""JSON Schema: references, validation and its cost, and problems of values."""
