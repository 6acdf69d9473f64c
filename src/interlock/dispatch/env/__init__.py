"""Environments: what a unit may see, where secrets come from, and that they are never shown."""
