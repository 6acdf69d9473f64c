"""Makes docs/configuration.md from the tables in `interlock/plan/config_kinds.py`; `--check` tells whether it is fresh.

Guarantee: every key that a configuration file may have is on the page, with its form and default from the code, and no
other; a key without words, or words without a key, is an error here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from interlock.dispatch.commands.context import MAX_VARIABLE_BYTES
from interlock.dispatch.prompts.limiter_file import MAX_PLACES
from interlock.driver.sources import MAX_SCRIPT_BYTES
from interlock.model import canon
from interlock.model.plan import KEY_OF_API
from interlock.plan import body, children, compile, config_parse, document, freeze, gates, retry, steps  # noqa: A004 - a room's name
from interlock.plan.config import Config, Engine
from interlock.plan.config_kinds import AGENT, ENV, LIMITS, LLM, RUN, SECRET, SECTIONS, Kind
from interlock.plan.config_shown import effective

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "configuration.md"

HEAD = """\
# Configuration

What `interlock.toml` in the project's root may say, and `$XDG_CONFIG_HOME/interlock/config.toml` (else
`~/.config/interlock/config.toml`) for all your projects. The project's file lies over yours: `[run]` and `[limits]` key by
key, named tables (`[engines.X]`, `[env.X]`, `[models.X]`) whole. `interlock config` shows what holds and where it was
written; `interlock doctor` whether it is to be had here.

Limits and settings are frozen into a run's plan when it starts: a change holds for new runs, and for a `fork`.
Addresses, keys and an engine's `concurrency` are read anew at each dispatch.

This page is made from the tables of keys by `tools/make_configuration.py`; a test fails when it is not fresh.
"""

Words = Mapping[str, tuple[str, str]]
"""Of each key what holds without it (empty: the code says it), and what it does."""

_RUN: Final[Words] = {
    "engine": ("none", "Engine of prompts that name none."),
    "judge": ("none", "Engine of `### gate` rubrics whose gate names none."),
    "max_concurrency": ("", "How many units of a run, with its child runs, are at work at the same time."),
    "journal": ("", "Where runs are journaled; this version has `sqlite` only."),
    "executor": ("", "Where work runs; this version has `local` only."),
    "python": (
        "the project's `.venv/bin/python`, else interlock's own",
        "Interpreter of Python functions and of `.py` scripts. With a slash in it, it is relative to the project's root.",
    ),
    "timeout": ("", "Timeout of a unit where no workflow says one; child workflows have none."),
    "idle_timeout": ("", "How long a unit may show no progress where no workflow says it."),
    "judge_clip_chars": ("", "How many characters of an artifact a judge sees."),
}
_LIMITS: Final[Words] = {
    "max_result_bytes": ("", "Result of one unit, as JSON; a larger one fails it as `output_too_large`."),
    "max_artifact_bytes": ("", "Artifact of one step, as JSON; a larger one fails it as `output_too_large`."),
    "max_items": ("", "Items of one `map`."),
    "max_log_bytes": ("", "What the log keeps of one attempt's output; the rest is dropped, and a line says so."),
}
_ENGINE: Final[Words] = {
    "kind": ("required", "`llm` is one call of a model API, `agent` a coding agent's command line."),
    "api": ('required with `kind = "llm"`', "The API that is spoken."),
    "agent": (
        'required with `kind = "agent"`',
        "One of the [agents](agents), `acp`, or `command`: a program of your own.",
    ),
    "model": ("the engine's own", "Exact id of a model, or an alias of `[models]`."),
    "api_key": (
        ", ".join(f"`${name}`" for name in sorted(KEY_OF_API.values())) + " by API; an agent's own login",
        "Variable that holds the key. The value itself is never in a file.",
    ),
    "base_url": ("the maker's", "Address of the API."),
    "concurrency": (f"{MAX_PLACES}", "Prompts at the same time, shared by all runs of this host."),
    "reserve_tokens": (
        "",
        "Tokens that a call is charged while it runs, and that one which tells none is said to use.",
    ),
    "args": ("none", "Arguments that are appended to the agent's command line."),
    "command": (
        "the agent's program",
        "Program and first arguments instead of the agent's; required by `acp` and `command`.",
    ),
    "env": ("none", "Groups of `[env]` that the engine gets."),
    "output": ("", "What a `command` prints: the answer, or an object with `text` and `usage`."),
}
_ENV: Final[Words] = {
    "vars": ("none", "Variables that are passed on from interlock's own environment."),
    "dotenv": ("none", "Files of `NAME=value` lines, relative to the project's root."),
    "secrets": ("none", "Variables and where their values come from, see below."),
}
_SECRET: Final[Words] = {
    "command": ("", "Program that prints the value; it runs in the project's root when a driver first needs it."),
    "var": ("", "Another variable that holds the value."),
}
_SECTIONS: Final = {
    "run": "What holds for every run here unless a workflow says otherwise.",
    "limits": "Sizes and counts beyond which something fails rather than fill disk or memory.",
    "engines": "`[engines.NAME]`: an engine that answers prompts; see [choosing engines](guide-engines.md).",
    "models": '`[models.ALIAS]`: exact model ids by engine name, by agent or API, or by `"*"` for all others.',
    "env": "`[env.NAME]`: what steps that say `env: [NAME]` get; see [secrets](guide-secrets.md).",
}


def page() -> str:
    """Return the whole page. Raises ValueError when words and keys differ."""
    if set(_SECTIONS) != set(SECTIONS):
        raise ValueError(f"sections without words, or words without a section: {set(_SECTIONS) ^ set(SECTIONS)}")
    known = {entry.key: entry.value for entry in effective(Config())}
    engine = {"reserve_tokens": Engine(name="x", kind="agent").reserve_tokens, "output": "text"}
    parts = [
        HEAD,
        *_section("run", RUN, _RUN, {key: known.get(f"run.{key}") for key in RUN}),
        *_section("limits", LIMITS, _LIMITS, {key: known.get(f"limits.{key}") for key in LIMITS}),
        *_section("engines", LLM | AGENT, _ENGINE, engine),
        "Only for `llm`: "
        + _listed(LLM.keys() - AGENT.keys())
        + ". Only for `agent`: "
        + _listed(AGENT.keys() - LLM.keys())
        + ".\n",
        *_section("models", {}, {}, {}),
        *_section("env", ENV, _ENV, {}),
        'Each of `secrets` is one of these, as in `TOKEN = { command = ["pass", "show", "token"] }`:\n',
        *_table(SECRET, _SECRET, {}),
        *_fixed(),
    ]
    return "\n".join(parts)


def _section(name: str, kinds: Mapping[str, Kind], words: Words, defaults: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {name}\n"
    yield f"{_SECTIONS[name]}\n"
    if kinds:
        yield from _table(kinds, words, defaults)


def _table(kinds: Mapping[str, Kind], words: Words, defaults: Mapping[str, Any]) -> Iterator[str]:
    if set(kinds) != set(words):
        raise ValueError(f"keys without words, or words without a key: {set(kinds) ^ set(words)}")
    yield "| key | value | default | what it does |"
    yield "| --- | --- | --- | --- |"
    for key, (default, does) in words.items():
        wanted = kinds[key].wanted.replace("|", "\\|")
        yield f"| `{key}` | {wanted} | {default or _spelled(defaults.get(key))} | {does} |"
    yield ""


def _spelled(value: object) -> str:
    if isinstance(value, int):
        return _bytes(value)
    return "" if value is None else f"`{value}`"


def _bytes(number: int) -> str:
    for unit, size in (("MiB", 1024**2), ("KiB", 1024)):
        if number % size == 0:
            return f"{number:,} ({number // size:,} {unit})"
    return f"{number:,}"


def _listed(keys: set[str]) -> str:
    return ", ".join(f"`{key}`" for key in sorted(keys))


def _fixed() -> Iterator[str]:
    """Yield the limits that no key moves."""
    yield "## Limits that stand fast\n"
    yield "| of | at most |"
    yield "| --- | --- |"
    for what, most in (
        ("a workflow file", _bytes(document.MAX_BYTES)),
        ("a configuration file", _bytes(config_parse.MAX_BYTES)),
        ("a section of prose", _bytes(body.MAX_PROSE_BYTES)),
        ("a script", _bytes(MAX_SCRIPT_BYTES)),
        ("all scripts of a plan", _bytes(freeze.MAX_SCRIPTS_BYTES)),
        ("a plan without its scripts", _bytes(freeze.MAX_PLAN_BYTES)),
        ("steps of a workflow", f"{compile.MAX_STEPS}"),
        ("child workflows below each other", f"{children.MAX_DEPTH}"),
        ("levels of nesting in YAML and JSON", f"{canon.MAX_DEPTH}"),
        ("`concurrency` of a map", f"{steps.MAX_CONCURRENCY}"),
        ("`max` of a retry", f"{retry.MAX_RETRIES}"),
        ("`max_loops` of a gate", f"{gates.MAX_LOOPS}"),
        ("`judges` of a gate", f"{gates.MAX_JUDGES}"),
        ("a param or an item as a variable of a command; it stays in the context file", _bytes(MAX_VARIABLE_BYTES)),
    ):
        yield f"| {what} | {most} |"
    yield ""


def main(arguments: list[str]) -> int:
    """Write the page, or with --check compare it."""
    fresh = page()
    if arguments == ["--check"]:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == fresh:
            return 0
        print("docs/configuration.md is not fresh: run tools/make_configuration.py", file=sys.stderr)
        return 1
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
