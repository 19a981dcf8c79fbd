"""Tiny GGUF models with random weights, one for each architecture that people run: for exactness, not for reading."""
