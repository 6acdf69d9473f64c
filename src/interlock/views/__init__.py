"""What a reader of a run sees: pure functions from journal rows to the JSON contract.

The command line prints these values as they are with `--json` and draws its tables from them, so the two
cannot tell different stories. Nothing here reads a clock, a file or a store.
"""
