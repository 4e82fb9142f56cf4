"""JSON Schema read into shapes: one representation from which declarations in any language are printed."""
