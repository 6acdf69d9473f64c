"""Fakes and builders, shipped, imported by tests and the self-test only."""
