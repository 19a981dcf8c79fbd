"""Drafters served to other processes and machines, and drafters kept in a process of their own."""
