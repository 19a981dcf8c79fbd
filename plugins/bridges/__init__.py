"""Built-in bridges: a file's name is its registry name."""
