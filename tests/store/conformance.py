"""The journal's contract as tests. A body passes when a class with a `store` fixture and these suites is green."""

from __future__ import annotations

from tests.store.conformance_attempts import AttemptsSuite
from tests.store.conformance_children import ChildrenSuite
from tests.store.conformance_forks import ForksSuite
from tests.store.conformance_gates import GatesSuite
from tests.store.conformance_prompts import PromptsSuite
from tests.store.conformance_runs import RunsSuite
from tests.store.conformance_steps import StepsSuite


class Conformance(RunsSuite, ChildrenSuite, AttemptsSuite, StepsSuite, GatesSuite, PromptsSuite, ForksSuite):
    """All of it."""
