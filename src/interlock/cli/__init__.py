"""The command line: one file per command under `commands/`, live progress under `progress/`."""
