"""Chat messages to a prompt, by the model's own template, in a process with limits."""
