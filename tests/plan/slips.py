"""A workflow and a configuration without a fault, and the slips of a hand that spoil a word of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from interlock.errors import Diagnostic
from interlock.plan.compile import compile_workflow
from interlock.plan.config_check import check_config
from interlock.plan.config_parse import parse_config
from interlock.plan.resolve import resolve
from interlock.testing.sources import FakeSources

CHILD = "---\nparams: { notes: { type: array, required: true } }\nsteps:\n  - { id: only, run: echo }\n---\n"
WORKFLOW = """---
params:
  base: { type: string, default: main, description: Branch }
  files: { type: array, items: { type: string } }
defaults: { engine: coder, on_error: fail, isolation: worktree, env: [staging] }
budget: { max_units: 40, max_tokens: 9000, max_cost_usd: 5, max_duration: 2h }
steps:
  - id: discover
    run: git diff
    output: { type: array, items: { type: string } }
    effects: external
    probe: test -e done
  - id: review
    map:
      over: steps.discover.output
      concurrency: 8
      reducer: merge
    retry: { max: 2, on: [timeout], session: continue, backoff: { initial: 1s, factor: 2, max: 1m } }
    worktree_base: params.base
    gate: { check: pytest }
  - id: collect
    map:
      over: params.files
      output: { type: object, required: [verdict], properties: { verdict: { enum: [pass, fail] } } }
    engine: fast
    model: deep
    isolation: none
    temperature: 0
    max_tokens: 100
    extra_params: { seed: 1 }
    gate: { judge: fast, judges: 3, max_loops: 3, each: true }
  - id: tests
    needs: [discover, review]
    run: pytest
    cwd: src
    timeout: 10m
    idle_timeout: 1m
    worktree_uncommitted: true
    gate: { approval: true }
  - id: verdict
    needs: [collect, tests]
    inputs: { all: steps.collect.output, branch: steps.review.output.branch, found: "steps.discover.output[0]" }
    uses: python:pack:verdict
  - id: choose
    route: { input: steps.verdict.output, when: [{ match: pass, step: publish }], default: repair }
  - id: publish
    uses: ./child.md
    with: { notes: steps.collect.output }
  - id: repair
    needs: [choose]
    inputs: [steps.tests.output, steps.verdict.output]
    unit: { exec: { command: [make, repair], cwd: src } }
---
## review
Look for errors.
## collect
Say what it is.
### gate
It says so.
"""
CONFIG = """[run]
engine = "coder"
judge = "fast"
max_concurrency = 8
timeout = "10m"
[limits]
max_items = 100
[engines.fast]
kind = "llm"
api = "openai"
base_url = "http://127.0.0.1:8080/v1"
model = "deep"
api_key = "$FAST_KEY"
[engines.coder]
kind = "agent"
agent = "claude"
env = ["staging"]
[engines.own]
kind = "agent"
agent = "command"
command = ["answer"]
output = "json"
[models.deep]
fast = "small-1"
[env.staging]
vars = ["REGION"]
[env.staging.secrets]
TOKEN = { var = "STAGING_TOKEN" }
KEY = { command = ["pass", "show"] }
"""
_KEY = re.compile(r"(?m)(?:^ *(?:- )?|[{,] )([a-z_]{2,}): ")


def lint(workflow: str = WORKFLOW, config: str = CONFIG) -> list[Diagnostic]:
    """Return all that `interlock lint` would say, without its program."""
    read, found = parse_config(config.encode(), "interlock.toml")
    settings, checked = check_config(read, lambda: ("claude", "codex", "command"))
    compiled = compile_workflow(workflow.encode(), "flow.md")
    told = {*found, *checked, *compiled.diagnostics}
    if compiled.sound is not None:
        world = FakeSources(
            workflows={"child.md": CHILD}, modules={"pack": b"def verdict(x): ..."}, folders=(".", "src")
        )
        told.update(resolve(compiled.sound, settings, world).diagnostics)
    return sorted(told)


def near_misses(word: str) -> Iterator[str]:
    """Yield `word` with each letter left out, doubled, mistyped, and swapped with the next."""
    for at, letter in enumerate(word):
        yield word[:at] + word[at + 1 :]
        yield word[:at] + letter + word[at:]
        if len(word) > len("id"):
            yield word[:at] + "q" + word[at + 1 :]
        yield word[:at] + word[at + 1 : at + 2] + letter + word[at + 2 :]
    yield word.capitalize()


def keys(text: str) -> Iterator[tuple[int, str]]:
    """Yield where each key of the workflow begins, with the key."""
    end = text.index("\n---\n")
    for found in _KEY.finditer(text, 0, end):
        yield found.start(1), found[1]


def spoilt(text: str, at: int, word: str) -> Iterator[tuple[str, str]]:
    """Yield each near miss of the `word` that begins at `at`, with the text that has it in its place."""
    for miss in dict.fromkeys(near_misses(word)):
        if miss not in {word, ""}:
            yield miss, text[:at] + miss + text[at + len(word) :]
