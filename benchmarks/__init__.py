"""Benchmarks of speed and memory (`make bench`): they print ratios and counts of one run, and assert nothing."""
