"""Plugins: where they come from, how they are loaded, and what went wrong."""
