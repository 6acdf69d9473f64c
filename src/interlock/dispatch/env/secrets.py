"""Resolves the env groups that a step names, when it dispatches: variables, dotenv files, secrets by command.

Guarantees: a group is resolved once per driver and only when asked for; a failed one is asked again next time; no
message holds a value; every value is known to the redactor, whatever it came from, and what is secret (keys, secrets,
dotenv files) to that of every other job too, also of one under way, since any child may read it from its environment
or a file. A secret's command carries the driver's marker, ends when asked to stop, and none begins after that. Within a
group secrets stand over dotenv files, those over variables; a later group stands over an earlier one. Safe from any thread.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from interlock.dispatch.env.clean import clean
from interlock.dispatch.env.growing import GrowingRedactor, Hidden
from interlock.dispatch.env.redact_base import (
    MIN_LENGTH,
    EnvStoppedError,
    EnvUnresolvedError,
    NullRedactor,
    ResolvedEnv,
)
from interlock.dispatch.processes.markers import VARIABLE
from interlock.model.plan import EnvGroup, SecretSource

COMMAND_TIMEOUT_S: Final = 30.0
RECALL_S: Final = 10.0
"""How long what earlier steps were given may take to be had again, all in all; the run waits for it."""
MAX_VALUE_BYTES: Final = 131_071
"""Linux takes no longer entry of an environment."""
_NOTHING: Final = ResolvedEnv({}, NullRedactor())


class EnvResolver:
    """`extra` are values to redact that no group holds, with their names: params that look like secrets.

    `keys` are the variables with engines' keys; `mark` is the marker of secrets' commands.
    """

    def __init__(
        self,
        groups: Iterable[EnvGroup],
        root: str | Path,
        extra: Iterable[tuple[str, str]] = (),
        environ: Mapping[str, str] | None = None,
        *,
        keys: Iterable[str] = (),
        mark: str = "",
        command_timeout_s: float = COMMAND_TIMEOUT_S,
    ) -> None:
        self._groups = {group.name: group for group in groups}
        self._root = Path(root)
        self._extra = tuple(extra)
        self._environ = os.environ if environ is None else environ
        sources = [secret.var for group in self._groups.values() for secret in group.secrets if secret.var is not None]
        self._known = [(name, self._environ[name]) for name in (*keys, *sources) if self._environ.get(name)]
        self._grows = any(group.dotenv or group.secrets for group in self._groups.values())
        self._command_timeout_s = command_timeout_s
        self._mark = {os.fsencode(VARIABLE): os.fsencode(mark)} if mark else {}
        self._command: subprocess.Popen[bytes] | None = None
        self._command_lock = threading.RLock()
        """Reentrant, since a signal's handler may ask to stop while this thread starts a command."""
        self._stopped = False
        self._lock = threading.Lock()
        self._values: dict[str, dict[str, str]] = {}
        self._resolved: dict[tuple[tuple[str, ...], Hidden], ResolvedEnv] = {}

    def resolve(self, names: tuple[str, ...], more: Hidden = ()) -> ResolvedEnv:
        """Return the values of the groups; `more` is to be redacted too.

        Raises EnvUnresolvedError that names what is missing. Without `names` this waits for nobody.
        """
        found = self._resolved.get((names, more))
        if found is not None:
            return found
        if not names:
            if not (more or self._extra or self._known or self._grows):
                return _NOTHING
            return self._resolved.setdefault((names, more), self._merge(names, more))
        with self._lock:
            return self._resolved.setdefault((names, more), self._merge(names, more))

    def recall(self, names: Iterable[str]) -> list[str]:
        """Make known what may lie in files by now: all dotenv files, and the secrets of these groups.

        Return what cannot be redacted since it cannot be had; a dotenv file that is missing has told nobody anything.
        """
        until = time.monotonic() + RECALL_S
        missing = []
        with self._lock:
            for group in self._groups.values():
                for file in group.dotenv:
                    with contextlib.suppress(EnvUnresolvedError):
                        self._file(group, file)
            for name in names:
                if not any(secret.command for secret in self._groups[name].secrets):
                    continue
                try:
                    self._group(name, max(0.1, until - time.monotonic()))
                except EnvStoppedError:
                    break
                except EnvUnresolvedError as error:
                    missing.append(f"{error.message}; until it resolves, what it gave earlier steps cannot be redacted")
        return missing

    def stop(self) -> None:
        """End the secret's command that runs, and begin no other. Safe in a signal handler. Idempotent."""
        with self._command_lock:
            self._stopped = True
            if self._command is not None:
                _end(self._command)

    def _merge(self, names: tuple[str, ...], more: Hidden) -> ResolvedEnv:
        values: dict[str, str] = {}
        hidden = [*self._extra, *more]
        for name in names:
            group = self._group(name)
            values.update(group)
            # a value that a later group stands over may still be said by a program that reads the source itself
            hidden += group.items()
        warnings = tuple(
            f"the value of {name} is shorter than {MIN_LENGTH} characters, so it cannot be redacted"
            for name in dict.fromkeys(name for name, value in hidden if len(value) < MIN_LENGTH)
        )
        return ResolvedEnv(values, GrowingRedactor(tuple(hidden), self._known), tuple(sorted(values)), warnings)

    def _group(self, name: str, most_s: float | None = None) -> dict[str, str]:
        found = self._values.get(name)
        if found is None:
            group = self._groups.get(name)
            if group is None:
                raise _unresolved(f"env group {name} is not configured", f"add [env.{name}] to interlock.toml")
            found = self._values[name] = self._read(group, self._command_timeout_s if most_s is None else most_s)
        return found

    def _know(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Let every redactor know these from now on."""
        self._known += [pair for pair in dict.fromkeys(pairs) if pair not in self._known]

    def _read(self, group: EnvGroup, most_s: float) -> dict[str, str]:
        values = {name: self._variable(group, name) for name in group.vars}
        for file in group.dotenv:
            values.update(self._file(group, file))
        for secret in group.secrets:
            values[secret.name] = self._secret(group, secret, most_s)
        for name, value in values.items():
            if len(os.fsencode(f"{name}={value}")) > MAX_VALUE_BYTES:
                raise _unresolved(
                    f"env group {group.name}: the value of {name} is larger than 128 KiB", "hand it over in a file"
                )
        return values

    def _variable(self, group: EnvGroup, name: str) -> str:
        value = self._environ.get(name)
        if value is None:
            raise _unresolved(
                f"env group {group.name}: the variable {name} is not set",
                f"set {name} before you start interlock, or take it out of [env.{group.name}]",
            )
        return value

    def _file(self, group: EnvGroup, file: str) -> dict[str, str]:
        from interlock.dispatch.env import dotenv  # noqa: PLC0415 - its patterns take time to compile, and few have such files

        path = self._root / file
        try:
            values = dotenv.parse(path.read_text(encoding="utf-8"))
        except OSError as error:
            problem = error.strerror or "cannot be read"
        except UnicodeDecodeError:
            problem = "not UTF-8"
        except dotenv.DotenvError as error:
            problem = str(error)
        else:
            # also what another value stands over: whoever reads the file may say it
            self._know(values.items())
            return values
        raise _unresolved(
            f"env group {group.name}: dotenv file {path}: {problem}",
            f"mend the file, or take it out of [env.{group.name}]",
        )

    def _secret(self, group: EnvGroup, secret: SecretSource, most_s: float) -> str:
        if secret.var is not None:
            value = self._environ.get(secret.var)
            if value is None:
                raise _unresolved(
                    f"env group {group.name}: the variable {secret.var}, source of {secret.name}, is not set",
                    f"set {secret.var} before you start interlock",
                )
            return value
        try:
            value = self._output(secret.command, min(most_s, self._command_timeout_s))
        except _SecretCommandError as error:
            raise _unresolved(
                f"env group {group.name}: the command `{secret.command[0]}` for {secret.name} {error}",
                f"run it by hand in {self._root} to see what it says",
            ) from None
        self._know([(secret.name, value)])
        return value

    def _output(self, argv: tuple[str, ...], most_s: float) -> str:
        """Run a secret's command; what it says on stderr is left out of messages, since it may hold the value."""
        try:
            process = self._started(argv)
        except (OSError, ValueError) as error:
            text = error.strerror if isinstance(error, OSError) else "NUL in its arguments"
            raise _SecretCommandError(f"cannot be started: {text}") from error
        with process:
            try:
                raw, _ = process.communicate(timeout=most_s)
            except subprocess.TimeoutExpired:
                raise _SecretCommandError(f"gave no answer within {most_s:.2g} s") from None
            finally:
                with self._command_lock:
                    # its leftovers hold our pipe, and an unreaped leader its pid
                    _end(process)
                    self._command = None
        if self._stopped:
            raise _stopped()
        return _value(raw, process.returncode)

    def _started(self, argv: tuple[str, ...]) -> subprocess.Popen[bytes]:
        with self._command_lock:
            if self._stopped:
                raise _stopped()
            process = self._command = subprocess.Popen(
                argv,
                cwd=self._root,
                env=clean(self._environ) | self._mark,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            if self._stopped:
                # by a signal's handler, while the process was nobody's yet
                _end(process)
            return process


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


class _SecretCommandError(Exception):
    """What is wrong with a secret's command, to follow its name."""


def _value(raw: bytes, exit_code: int) -> str:
    if exit_code < 0:
        raise _SecretCommandError(f"was killed by signal {-exit_code}")
    if exit_code:
        raise _SecretCommandError(f"failed with exit code {exit_code}")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise _SecretCommandError("printed what is not UTF-8") from None
    value = text.removesuffix("\n").removesuffix("\r")
    if not value:
        raise _SecretCommandError("printed nothing")
    if "\0" in value:
        raise _SecretCommandError("printed a NUL byte, which no variable can hold")
    return value


def _stopped() -> EnvStoppedError:
    return EnvStoppedError("env-unresolved", "cancelled while its secrets were asked for")


def _unresolved(message: str, hint: str) -> EnvUnresolvedError:
    return EnvUnresolvedError("env-unresolved", message, hint)
