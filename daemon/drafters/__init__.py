"""The drafters of a loaded model: the pool they are in, the guards around them, and the memory they may have."""
