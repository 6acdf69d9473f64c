"""`python -m interlock` is `interlock`."""

from __future__ import annotations

from interlock.cli.entry import main

main()
