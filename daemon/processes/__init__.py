"""Child processes: started, watched, and ended with their parent."""
