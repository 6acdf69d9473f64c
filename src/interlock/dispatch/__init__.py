"""The outside world: processes, Python workers, secrets, logs."""
