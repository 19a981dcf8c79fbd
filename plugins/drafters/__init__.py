"""Built-in drafters: a file's name is its registry name."""
