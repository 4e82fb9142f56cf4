"""Programs that a check must let pass, and mistakes that it should find."""
