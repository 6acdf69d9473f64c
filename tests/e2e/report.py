"""How many end-to-end tests were skipped, said at the end of every test run that skipped some."""

from __future__ import annotations

import pytest
from tests.e2e.agents import ALL, missing


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    absent = sorted({agent.program for agent in ALL.values() if missing(agent)})
    skipped = [report for report in terminalreporter.stats.get("skipped", ()) if "tests/e2e" in report.nodeid]
    if absent or skipped:
        terminalreporter.write_line(f"end-to-end tests skipped: {len(skipped)}; not installed: {', '.join(absent)}")
