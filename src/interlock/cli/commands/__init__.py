"""One file per command; each holds its click command under the name `command`."""
