"""llama-server's JSON: requests parsed once into types, answers written as it writes them."""
