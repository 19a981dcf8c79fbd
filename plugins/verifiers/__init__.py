"""Built-in verifiers: a file's name is its registry name."""
