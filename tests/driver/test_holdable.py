from __future__ import annotations

from typing import Any

import msgspec
import pytest

from interlock.driver.holdable import holdable
from interlock.model.events import Answered, Usage
from interlock.model.outcome import Outcome
from interlock.model.states import Reason

FINE = Outcome(
    dispatch="d",
    status="failed",
    reason=Reason.LLM_QUOTA,
    error="no money: 5 €",
    usage=Usage(
        input_tokens=0, output_tokens=10**12, cost_usd=0.5, cached_tokens=1, reasoning_tokens=2, estimated=True
    ),
    answered_by=Answered(session="s", model="modèle", request_id="r"),
    notices=("ü",),
    retry_after_ms=1,
    quota_until=1_700_000_000_000,
)


def test_what_a_journal_can_hold_stays_as_it_is() -> None:
    assert holdable(FINE) == FINE
    plain = Outcome(dispatch="d", status="ok", output=b"1")
    assert holdable(plain) is plain


@pytest.mark.parametrize("count", [-1, 10**12 + 1, 10**30, 1.5, True, "many"])
def test_a_count_that_cannot_be_is_unknown(count: Any) -> None:
    names = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
    odd = msgspec.structs.replace(FINE, usage=Usage(cost_usd=1.0, **dict.fromkeys(names, count)))
    assert holdable(odd).usage == Usage(cost_usd=1.0)


@pytest.mark.parametrize("cost", [float("nan"), float("inf"), -0.5, 1e300, 10**400, "much"])
def test_a_cost_that_cannot_be_is_unknown(cost: Any) -> None:
    odd = msgspec.structs.replace(FINE, usage=Usage(input_tokens=1, cost_usd=cost))
    assert holdable(odd).usage == Usage(input_tokens=1)


def test_times_beyond_all_clocks_are_unknown() -> None:
    odd = holdable(msgspec.structs.replace(FINE, retry_after_ms=10**30, quota_until=-1))
    assert (odd.retry_after_ms, odd.quota_until) == (None, None)


def test_texts_that_are_no_utf_8_are_told_all_the_same() -> None:
    odd: Any = "caf\udce9"
    number: Any = 7
    given = Answered(session=odd, model=odd, request_id=number)
    found = holdable(msgspec.structs.replace(FINE, error=odd, notices=(odd,), answered_by=given))
    told = r"caf\udce9"
    assert (found.error, found.notices) == (told, (told,))
    assert found.answered_by == Answered(session=told, model=told)
