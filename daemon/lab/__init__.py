"""Measuring and proving: workloads, the demo, parity runs and benchmarks."""
