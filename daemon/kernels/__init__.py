"""Batch-invariant kernels: their source, compiled for this machine, and where they lie."""
