"""Prompts: to a model's API or to an agent, within the engine's limits."""
