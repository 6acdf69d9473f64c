"""Reading the configuration files of a project. A file that is not there is an empty configuration."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET

from interlock.driver.project import ProjectPaths
from interlock.errors import ConfigError, Diagnostic
from interlock.model.workflow import Place
from interlock.plan.config import Config, merge_config
from interlock.plan.config_check import check_config
from interlock.plan.diagnose import Source

if TYPE_CHECKING:
    from interlock.plan.config_shown import Entry


def load_config(paths: ProjectPaths) -> tuple[Config, tuple[Diagnostic, ...]]:
    """Return the project's configuration over the user's, with everything that is wrong in either."""
    user, project = (_read(path) for path in paths.config_files)
    config, found = check_config(merge_config(user[0], project[0]), _agents)
    return config, tuple(sorted({*user[1], *project[1], *found}))


def _agents() -> tuple[str, ...]:
    from interlock.dispatch.agents.registry import names  # noqa: PLC0415 - reads the table of agents

    return names()


def in_force(config: Config, paths: ProjectPaths) -> list[Entry]:
    """Return every setting that holds in the project, sorted by key."""
    from interlock.driver.sources import FileSources  # noqa: PLC0415 - only `interlock config` asks
    from interlock.plan.config_shown import Entry, effective  # noqa: PLC0415 - as above
    from interlock.plan.sources import Missing  # noqa: PLC0415 - as above

    found = list(effective(config))
    if config.run.python is UNSET:
        python = FileSources(paths.root / "any.md", paths).python(())
        if not isinstance(python, Missing):
            found.append(Entry(key="run.python", value=list(python)))
    return sorted(found, key=lambda entry: entry.key)


def is_faulty(diagnostics: Iterable[Diagnostic]) -> bool:
    """Tell whether one of them is an error."""
    return any(found.severity == "error" for found in diagnostics)


def require_config(paths: ProjectPaths) -> Config:
    """Return the configuration. Raises ConfigError when any of it is wrong."""
    config, diagnostics = load_config(paths)
    if is_faulty(diagnostics):
        raise ConfigError(diagnostics)
    return config


def _refused_pipe() -> bytes:
    raise OSError(errno.EINVAL, "a pipe or device")


def _read(path: Path) -> tuple[Config, tuple[Diagnostic, ...]]:
    try:
        # a pipe without a writer would be waited for
        text = path.read_bytes() if path.is_file() or path.is_dir() or not path.exists() else _refused_pipe()
    except (FileNotFoundError, NotADirectoryError):
        return Config(), ()
    except OSError as error:
        source = Source(str(path), ())
        message = f"can't read the configuration: {(error.strerror or str(error)).lower()}"
        source.error(Place(line=1, column=1), "unreadable", message, "make the file readable, or move it away")
        return Config(faulty=frozenset({""})), source.diagnostics()
    if not text.strip():
        return Config(), ()
    from interlock.plan.config_parse import parse_config  # noqa: PLC0415 - heavy: TOML, with places

    return parse_config(text, str(path))
