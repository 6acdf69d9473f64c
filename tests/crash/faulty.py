"""A proof with a fault planted: `python -m tests.crash.faulty FAULT PROOF [ARG...]`, which must exit 1."""

from __future__ import annotations

import importlib
import sys

from tests.crash.faults import FAULTS

if __name__ == "__main__":
    fault, proof, *argv = sys.argv[1:]
    with FAULTS[fault]():
        sys.exit(importlib.import_module(f"interlock.testing.{proof}").main(argv))
