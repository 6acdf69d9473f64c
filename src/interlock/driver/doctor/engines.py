"""The configured engines: whether each is there, in which version, whether its key is, and what it cannot do.

Programs are asked for their version, all at the same time, and a configured address is connected to; no prompt
is sent, nothing is spent and no key is read beyond the question whether it is set.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from interlock.dispatch.agents.base import Card
from interlock.dispatch.agents.registry import adapter
from interlock.dispatch.env.clean import clean
from interlock.driver.doctor.checks import Check
from interlock.driver.doctor.env import brings
from interlock.model.plan import EnvGroup
from interlock.plan.config import Engine

_GONE_S: Final = 1.0
_VERSION_S: Final = 20.0
_CONNECT_S: Final = 3.0
_VERSION_CHARACTERS: Final = 80
_AT_ONCE: Final = 4
_SDKS: Final = {
    "openai": ("openai", "openai"),
    "anthropic": ("anthropic", "anthropic"),
    "gemini": ("google.genai", "google-genai"),
}
"""API to the module and the distribution that speak it."""


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    """One part of what was looked at: in words, or what is wrong and what to do."""

    says: str = ""
    wrong: str = ""
    hint: str = ""
    notes: tuple[str, ...] = ()


def check_engines(engines: Iterable[Engine], root: Path, groups: Mapping[str, EnvGroup] = {}) -> list[Check]:
    """Look at each engine of the project at `root`, in the order in which they are configured."""
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="doctor") as pool:
        return list(pool.map(lambda engine: _check(engine, root, groups), engines))


def _check(engine: Engine, root: Path, groups: Mapping[str, EnvGroup]) -> Check:
    brought = {name: group for group in engine.env if group in groups for name in brings(groups[group], root)}
    parts = [_api(engine) if engine.kind == "llm" else _agent(engine, root), _address(engine), _key(engine, brought)]
    wrong = [part for part in parts if part.wrong]
    return Check(
        name=f"engine {engine.name}",
        ok=not wrong,
        detail="; ".join(text for part in parts for text in (part.wrong, part.says) if text),
        hint="; ".join(part.hint for part in wrong),
        notes=tuple(note for part in parts for note in part.notes),
    )


def _api(engine: Engine) -> _Found:
    api = engine.api or "openai"
    module, distribution = _SDKS[api]
    model = f", model {engine.model}" if engine.model else ""
    if not _importable(module):
        hint = "install it: pip install 'interlock[llm]'"
        return _Found(wrong=f"the package {distribution} is not installed", says=f"API {api}{model}", hint=hint)
    return _Found(says=f"API {api} by {distribution} {importlib.metadata.version(distribution)}{model}")


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _agent(engine: Engine, root: Path) -> _Found:
    agent = engine.agent or ""
    card = _card(agent)
    program = engine.command or ((card.program,) if card else ())
    notes = _notes(engine, card) if card else ()
    if not program:
        hint = f'set `command = ["..."]` of [engines.{engine.name}]'
        return _Found(wrong=f"agent {agent} has no program to start", hint=hint, notes=notes)
    # where an agent works a relative path begins at the project's root, wherever this is asked
    path = shutil.which(str(root / program[0]) if "/" in program[0] else program[0])
    if path is None:
        place = f"`command` of [engines.{engine.name}]"
        hint = f"correct {place}" if engine.command else f"install {agent}, or set {place} to where it is"
        wrong = "is no program" if "/" in program[0] else "is not on PATH"
        return _Found(wrong=f"{program[0]} {wrong}", says=f"agent {agent}", hint=hint, notes=notes)
    model = f", model {engine.model}" if engine.model else ""
    if agent == "command":
        # a program of the user's own promises no way to ask for its version
        return _Found(says=f"agent {agent}: {path}{model}", notes=notes)
    version = _version((path, *program[1:], *(card.version if card else ("--version",))), root)
    if version is None:
        hint = f"see what it says: {' '.join((*program, '--version'))}"
        return _Found(wrong=f"{path} does not tell its version", says=f"agent {agent}", hint=hint, notes=notes)
    return _Found(says=f"agent {agent}: {version} at {path}{model}", notes=notes)


def _card(agent: str) -> Card | None:
    try:
        return adapter(agent).card
    except KeyError:
        return None


def _notes(engine: Engine, card: Card) -> tuple[str, ...]:
    configured = {"base_url": engine.base_url, "api_key": engine.api_key, "model": engine.model}
    ignored = sorted(name for name, given in configured.items() if given and name in card.cannot)
    cannot = sorted(card.cannot.difference(ignored))
    return (
        *(f"`{name}` is configured, but it cannot honour that" for name in ignored),
        *([f"cannot honour {', '.join(cannot)}"] if cannot else []),
        *([] if card.enforces_schema else ["a schema is put into the prompt, since it enforces none"]),
        *card.caveats,
    )


def _version(argv: Sequence[str], root: Path) -> str | None:
    """The first line that a program says of its version; its whole process group is ended when it takes too long."""
    try:
        process = subprocess.Popen(
            argv,
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=clean(os.environ),
        )
    except OSError:
        return None
    with process:
        try:
            out, err = process.communicate(timeout=_VERSION_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            _await_end(process.pid)
            return None
    lines = (out.strip() or err.strip()).decode("utf-8", "replace").splitlines()
    return lines[0][:_VERSION_CHARACTERS] if process.returncode == 0 and lines else None


def _await_end(group: int) -> None:
    """Wait until the killed group is gone: its pipes close a moment before its processes do."""
    give_up = time.monotonic() + _GONE_S
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < give_up:
            os.killpg(group, 0)
            time.sleep(0.005)


def _address(engine: Engine) -> _Found:
    """Whether anything listens at a configured address."""
    if not engine.base_url:
        return _Found()
    url = urlsplit(engine.base_url)
    try:
        port = url.port or {"http": 80, "https": 443}.get(url.scheme)
        host = url.hostname
    except ValueError:
        port = host = None
    if host is None or port is None:
        hint = "write it like http://127.0.0.1:8080/v1"
        return _Found(wrong="base_url is no address", hint=hint)
    return _Found(says=f"{host}:{port} answers") if _listens(host, port) else _silent(engine.name, host, port)


def _silent(name: str, host: str, port: int) -> _Found:
    hint = f"start what should listen there, or correct base_url of [engines.{name}]"
    return _Found(wrong=f"nothing answers at {host}:{port}", hint=hint)


def _listens(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=_CONNECT_S):
            return True
    except OSError:
        return False


def _key(engine: Engine, brought: Mapping[str, str]) -> _Found:
    if not engine.api_key:
        own = "" if engine.agent == "command" else "uses its own login"
        return _Found(says=own if engine.kind == "agent" else "no key configured")
    if engine.api_key in brought:
        return _Found(says=f"key ${engine.api_key} comes from env group {brought[engine.api_key]}")
    if os.environ.get(engine.api_key):
        return _Found(says=f"key ${engine.api_key} is set")
    return _Found(wrong=f"key ${engine.api_key} is not set", hint=f"export {engine.api_key}=...")
