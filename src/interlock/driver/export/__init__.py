"""A run as a file of its own: written without secrets, sealed, verified and opened again."""
