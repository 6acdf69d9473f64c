"""Clocks, executors, builders and crash proofs: shipped, used by tests and `interlock selftest` only."""
