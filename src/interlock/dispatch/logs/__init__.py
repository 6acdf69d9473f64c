"""The run's log: written, read and copied."""
