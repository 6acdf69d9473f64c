"""The configured env groups: whether what they name is there. No secret's command is run and no value is told."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from interlock.dispatch.env import dotenv
from interlock.driver.doctor.checks import Check
from interlock.model.plan import EnvGroup
from interlock.plan.diagnose import listed


def check_groups(groups: Iterable[EnvGroup], root: Path) -> list[Check]:
    """Look at each group, in the order in which they are configured."""
    return [_check(group, root) for group in groups]


def brings(group: EnvGroup, root: Path) -> Iterator[str]:
    """The names that the group gives a value of its own, as far as it can be read."""
    yield from (secret.name for secret in group.secrets)
    for file in group.dotenv:
        with contextlib.suppress(OSError, ValueError, dotenv.DotenvError):
            yield from dotenv.parse((root / file).read_text(encoding="utf-8"))


def _check(group: EnvGroup, root: Path) -> Check:
    name = f"env {group.name}"
    wrong = [*_unset(group), *_files(group, root), *_programs(group, root)]
    if wrong:
        hint = f"set them before you start interlock, or correct [env.{group.name}]"
        return Check(name=name, ok=False, detail="; ".join(wrong), hint=hint)
    count = len(group.vars) + len(group.dotenv) + len(group.secrets)
    commands = any(secret.var is None for secret in group.secrets)
    return Check(name=name, ok=True, detail=f"{count} of {count} sources there" + ("; no command run" * commands))


def _unset(group: EnvGroup) -> Iterator[str]:
    named = [*group.vars, *(secret.var for secret in group.secrets if secret.var is not None)]
    unset = [variable for variable in named if variable not in os.environ]
    if unset:
        yield f"not set: {listed(unset).replace(' or ', ' and ')}"


def _files(group: EnvGroup, root: Path) -> Iterator[str]:
    for file in group.dotenv:
        try:
            dotenv.parse((root / file).read_text(encoding="utf-8"))
        except OSError as error:
            yield f"dotenv file '{file}': {(error.strerror or 'cannot be read').lower()}"
        except UnicodeDecodeError:
            yield f"dotenv file '{file}': not UTF-8"
        except dotenv.DotenvError as error:
            yield f"dotenv file '{file}': {error}"


def _programs(group: EnvGroup, root: Path) -> Iterator[str]:
    for secret in group.secrets:
        if secret.var is None:
            program = secret.command[0]
            # a secret's command runs in the project's root
            if shutil.which(str(root / program) if "/" in program else program) is None:
                yield f"the program '{program}' for {secret.name} is not there"
