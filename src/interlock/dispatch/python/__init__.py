"""Python functions in warm worker processes."""
