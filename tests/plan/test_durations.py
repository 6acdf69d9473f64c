"""Durations as people write them."""

from __future__ import annotations

import pytest

from interlock.plan.durations import DurationError, parse_duration


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("500ms", 500), ("90s", 90_000), ("10m", 600_000), ("2h", 7_200_000), ("none", None), ("1500", 1_500)],
)
def test_durations_are_whole_milliseconds(text: str, duration_ms: int | None) -> None:
    assert parse_duration(text) == duration_ms


@pytest.mark.parametrize("text", ["", "0", "0s", "1.5s", "-1", "1d", "10 m", "9999999999999999h", "\u0661s"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(DurationError):
        parse_duration(text)
