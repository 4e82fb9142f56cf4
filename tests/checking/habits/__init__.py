"""Programs as models write them by habit, and the tools that they call."""
