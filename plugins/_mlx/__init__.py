"""What the `mlx` verifier is made of: models that mlx-lm computes, with caches whose tails can be cut exactly."""
