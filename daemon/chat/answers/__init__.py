"""What a model wrote, taken apart: reasoning, content and calls of tools, as they stream in."""
