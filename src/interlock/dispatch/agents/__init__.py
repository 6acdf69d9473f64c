"""Coding agents: one small adapter for each CLI, one runner for all of them."""
