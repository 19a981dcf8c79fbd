"""MLX models made here: a GGUF written as one, and small ones with random weights. For tests and the lab."""
