"""JSON Schema: references, validation, its cost, and what is wrong with a value."""
