"""The version, a constant: reading package metadata would triple the start-up time."""

__version__ = "0.1.0"
