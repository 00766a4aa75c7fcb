"""What the benchmarks share: processes, the two platforms, tables."""
