"""pilotfish: speculative rounds for Ollama that never change a token and never cost time."""

__version__ = "0.2.0"
