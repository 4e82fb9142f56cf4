"""Language servers: where they are found, how they are started, and how they are asked."""
