"""What stands where Ollama looks for llama-server: the runner and its wire format."""
