"""Snapshot to actions, pure: what happens next, and what an outcome means."""
