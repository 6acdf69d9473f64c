"""The proofs hold, and each fails where a fault is planted that it is there for."""

from __future__ import annotations

import json

import pytest
from tests.crash.conftest import Prove

# of the sample run: the journal's schema, and its longest chain is ten attempts, each reserved no sooner than the one
# before it has ended
FEWEST_COMMITS = 12
# of its fork: `files`, one item of `mend`, the merge, and `merged`
FEWEST_COMMITS_OF_A_FORK = 5
# odd, so that kills before and after commits take turns; all cases are the gate beside the tests
EVERY = 17
RESERVED_LATE = "ran without a journaled attempt"
CHANGED = "changed the journal of a run that another drives"
UNGATED = "completed without the verdicts of their gates: fan, again, gated"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_driver_killed_at_any_commit_loses_nothing_and_repeats_nothing(prove: Prove) -> None:
    done = prove("-m", "interlock.testing.kill_matrix", "--every", str(EVERY), "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["holds"]
    assert report["commits"] >= FEWEST_COMMITS
    assert report["fork_commits"] >= FEWEST_COMMITS_OF_A_FORK
    for verb, commits in (("run", report["commits"]), ("fork", report["fork_commits"])):
        cases = [case for case in report["cases"] if case["verb"] == verb]
        assert len(cases) == -(-2 * commits // EVERY)
        assert {case["moment"] for case in cases} == {"before", "after"}


def test_a_driver_that_sleeps_through_its_lease_changes_nothing(prove: Prove) -> None:
    done = prove("-m", "interlock.testing.suspension", "--every", "3", "--resumed")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(" woke while another drove, 0 faults\n")


def test_drivers_killed_at_two_hundred_random_moments_finish_their_runs(prove: Prove) -> None:
    done = prove("-m", "interlock.testing.random_kills", "--kills", "200")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(" runs killed; all held\n")


@pytest.mark.parametrize(
    ("fault", "argv", "said"),
    [
        ("reserve_after_start", "kill_matrix --only run --every 5 --first", RESERVED_LATE),
        ("reserve_after_start", "random_kills --kills 40", RESERVED_LATE),
        ("finish_without_dispatch", "suspension --every 4 --first", CHANGED),
        ("finish_without_dispatch", "random_kills --kills 40 --asleep 0.5", CHANGED),
        ("write_without_term", "suspension --every 6 --first", "the driver that woke"),
        ("write_without_term", "random_kills --kills 40 --asleep 0.5", "the driver that woke"),
        # the undisturbed run, with which each of the proofs begins, shows it already
        ("skipped_gate", "kill_matrix", UNGATED),
        ("skipped_gate", "random_kills --kills 1", UNGATED),
        ("skipped_gate", "suspension --first", UNGATED),
        ("gate_skipped_on_resume", "kill_matrix --only run --every 9 --first", "gates skipped: "),
        ("gate_skipped_on_resume", "random_kills --kills 40", "gates skipped: "),
        ("unchecked_merge", "kill_matrix", "completed without the verdicts of their gates: mend"),
        # in the second commit `files` is reserved, so what its answer leads to cannot have been taken over by then
        (
            "fork_forgotten",
            "kill_matrix --only fork --every 4 --first",
            "fork, killed before commit 3: did not end as the undisturbed run",
        ),
        ("never_sleeps", "suspension --first", "the driver was not stopped, but ended with 6 after"),
        (
            "breaks_instead",
            "suspension --first",
            "not stopped, but ended with 70 after 0 commits: RuntimeError: cannot",
        ),
    ],
)
def test_the_proofs_fail_where_a_fault_is_planted(prove: Prove, fault: str, argv: str, said: str) -> None:
    done = prove("-m", "tests.crash.faulty", fault, *argv.split())
    assert done.returncode == 1
    assert said in done.stderr
