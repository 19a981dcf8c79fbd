"""What is wrong, or may surprise, between Ollama, the models and pilotfish: `pilotfish doctor`."""
