"""The loop, the only place where time passes."""
