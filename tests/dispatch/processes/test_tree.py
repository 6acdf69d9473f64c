from __future__ import annotations

import os
import signal
import time

import pytest
from tests.dispatch.shop import Shop, marked, runs, until

from interlock.dispatch.processes.leftovers import end_strays
from interlock.dispatch.processes.tree import Tree
from interlock.model.states import Reason

_DOUBLE_FORK = """
python3 - <<'END'
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open("escaped", "w").write(str(os.getpid()))
        time.sleep(60)
    os._exit(0)
os.wait()
while not os.path.exists("escaped"):
    time.sleep(0.01)
END
"""


def _pid_in(shop: Shop, name: str) -> int:
    return int(until(lambda: (shop.folder / name).exists() and (shop.folder / name).read_text().strip()))


def test_the_group_ends_with_its_leader_at_once(shop: Shop) -> None:
    outcome = shop.run("sleep 60 & echo $! > child")
    assert outcome.status == "ok"
    child = _pid_in(shop, "child")
    until(lambda: not runs(child), 2.0)


def test_a_pipe_held_by_one_that_left_the_group_does_not_keep_the_unit_open(shop: Shop) -> None:
    began = time.monotonic()
    outcome = shop.run("echo before; setsid sleep 60 & echo after")
    assert sorted(outcome.output.split()) == [b"after", b"before"]
    assert time.monotonic() - began < 20


def test_one_that_left_the_group_and_floods_the_pipe_does_not_keep_the_unit_open(shop: Shop) -> None:
    request = shop.start("setsid yes >&2 & sleep 0.2; echo out")
    outcome = shop.outcome(request)
    assert (outcome.status, outcome.output) == ("ok", b"out\n")


def test_what_left_the_group_lives_until_the_end_of_its_step_and_no_longer(shop: Shop) -> None:
    request = shop.start(_DOUBLE_FORK)
    assert shop.outcome(request).status == "ok"
    escaped = _pid_in(shop, "escaped")
    assert runs(escaped)
    other = shop.start("sleep 60")
    shop.started(other)
    assert shop.runner.end_strays(request.job.key) == 1
    assert not runs(escaped)
    assert runs(shop.started(other).process.pid), "another step's work goes on"


def test_a_timeout_ends_one_that_forked_twice_into_a_session_of_its_own(shop: Shop) -> None:
    request = shop.start(_DOUBLE_FORK + "sleep 60", timeout_ms=1500)
    escaped = _pid_in(shop, "escaped")
    assert shop.outcome(request).reason is Reason.TIMEOUT
    assert not runs(escaped)


def test_a_timeout_ends_a_child_that_emptied_its_environment_in_a_session_of_its_own(shop: Shop) -> None:
    request = shop.start("setsid env -i sleep 61 & echo $! > child; sleep 60", timeout_ms=1000)
    child = _pid_in(shop, "child")
    assert shop.outcome(request).reason is Reason.TIMEOUT
    assert not runs(child)


def test_a_cancel_waits_for_an_escaped_child_that_ignores_sigterm(shop: Shop) -> None:
    request = shop.start("setsid bash -c 'trap \"\" TERM; echo $$ > child; while :; do sleep 1; done' & sleep 60")
    child = _pid_in(shop, "child")
    shop.runner.cancel([request.dispatch], 0.3)
    assert shop.outcome(request).status == "aborted"
    assert not runs(child)


def test_a_child_without_mark_or_parent_is_still_known_once_it_was_seen(shop: Shop) -> None:
    stubborn = "trap '' TERM; echo $$ > child; while :; do sleep 1; done"
    request = shop.start(f'setsid env -i bash -c "{stubborn.replace("$", chr(92) + "$")}" & sleep 600')
    child = _pid_in(shop, "child")
    shop.runner.cancel([request.dispatch], 0.5)
    assert shop.outcome(request).status == "aborted"
    assert not runs(child)


def test_an_escaped_child_may_use_the_grace_after_its_leader_is_gone(shop: Shop) -> None:
    request = shop.start(
        "setsid bash -c 'trap \"sleep 0.3; echo tidy > done; exit\" TERM; echo $$ > child; while :; do sleep 0.05; done' &"
        "sleep 60"
    )
    _pid_in(shop, "child")
    shop.runner.cancel([request.dispatch], 5.0)
    assert shop.outcome(request).status == "aborted"
    assert (shop.folder / "done").read_text() == "tidy\n"


def test_trouble_while_killing_does_not_change_the_reason(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_self: Tree, _number: int) -> None:
        raise PermissionError(1, "not permitted")

    monkeypatch.setattr(Tree, "signal", refuse)
    monkeypatch.setattr("interlock.dispatch.commands.supervisor.KILL_AFTER_S", 0.1)
    assert shop.run("sleep 60", timeout_ms=200).reason is Reason.TIMEOUT


def test_our_own_group_is_never_signalled(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, _number: sent.append(group))
    Tree(os.getpgrp(), b"x").signal_group(signal.SIGTERM)
    Tree(1, b"x").signal_group(signal.SIGTERM)
    Tree(0, b"x").signal_group(signal.SIGTERM)
    assert sent == []


def test_strays_of_nothing_are_none(shop: Shop) -> None:
    assert end_strays(shop.marker, lambda _dispatch: False) == 0
    assert shop.runner.end_strays("no such job") == 0
    assert marked(shop.marker.run_id) == []
