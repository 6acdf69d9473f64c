from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.crash.conftest import Prove

# of the sample run: its longest chain is ten attempts, each reserved no sooner than the one before it has ended
FEWEST_COMMITS = 11
# of its fork: `files`, one item of `mend`, the merge, and `merged`
FEWEST_COMMITS_OF_A_FORK = 5
# odd, so that kills before and after commits take turns; all cases are the gate beside the tests
EVERY = 7
FAULTS = Path(__file__).parent / "faults"
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
    done = prove("-m", "interlock.testing.suspension", "--every", "3")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(" drivers suspended, 0 faults\n")


def test_drivers_killed_at_two_hundred_random_moments_finish_their_runs(prove: Prove) -> None:
    done = prove("-m", "interlock.testing.random_kills", "--kills", "200")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(" runs killed; all held\n")


@pytest.mark.parametrize(
    ("fault", "every", "said"),
    [
        ("work_before_reserve", "5", "ran without a journaled attempt"),
        ("finish_without_dispatch", "4", "changed the journal of a run that another drives"),
        ("write_without_term", "6", "the driver that woke"),
        ("skipped_gate", "50", "completed without the verdicts of their gates: fan, gated"),
        ("unchecked_merge", "50", "completed without the verdicts of their gates: mend"),
        # in the second commit `files` is reserved, so what its answer leads to cannot have been taken over by then
        ("fork_forgotten", "4", "fork, killed before commit 3: did not end as the undisturbed run"),
    ],
)
def test_the_proofs_fail_where_a_fault_is_planted(prove: Prove, fault: str, every: str, said: str) -> None:
    done = prove(str(FAULTS / f"{fault}.py"), "--every", every, "--first")
    assert done.returncode == 1
    assert said in done.stderr
