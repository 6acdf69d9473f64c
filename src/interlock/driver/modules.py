"""Finding the file of a Python module as a given interpreter would, without importing anything.

The folders put before the interpreter's own path are searched here; only what is in none of them is asked of
the interpreter, once for all names.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from importlib.machinery import FileFinder, SourceFileLoader
from pathlib import Path
from typing import Final

from interlock.plan.sources import Missing

_TIMEOUT_S: Final = 60
# `find_spec` of importlib.util would import the parents of a dotted name, so the finders are asked part by part
_ASK: Final = """
import json, sys
folders, names = json.loads(sys.argv[1]), json.loads(sys.argv[2])
sys.path[:] = folders + [entry for entry in sys.path if entry]
def spec_of(name, path):
    for finder in sys.meta_path:
        spec = finder.find_spec(name, path)
        if spec is not None and (spec.has_location or spec.submodule_search_locations is not None):
            return spec
    return None
def file_of(name):
    parts, path, spec = name.split("."), None, None
    for end in range(1, len(parts) + 1):
        if end > 1 and path is None:
            return None
        spec = spec_of(".".join(parts[:end]), path)
        if spec is None:
            return None
        path = spec.submodule_search_locations
    return spec.origin if spec.has_location else None
sys.stdout.write(json.dumps({name: file_of(name) for name in names}))
"""


def find_modules(names: Sequence[str], folders: Sequence[str], python: Sequence[str]) -> dict[str, Path | Missing]:
    """Return the file of each module, or why there is none."""
    here = {name: _in_folders(name, folders) for name in names}
    rest = [name for name, place in here.items() if place is None]
    found: dict[str, Path | Missing] = {name: place for name, place in here.items() if place is not None}
    return found | (_ask(rest, folders, python) if rest else {})


def _in_folders(name: str, folders: Sequence[str]) -> Path | None:
    """Return the module's file when the folders alone decide it."""
    search: Sequence[str] = folders
    *packages, last = name.split(".")
    for part in packages:
        spec = _first(part, search)
        if spec is None or not spec[1]:
            return None
        search = spec[1]
    spec = _first(last, search)
    return Path(spec[0]).resolve() if spec and spec[0] else None


def _first(part: str, folders: Sequence[str]) -> tuple[str, list[str]] | None:
    """Return (file, subfolders) of the first module of that name; a package without a file has "" for it."""
    portions: list[str] = []
    for folder in folders:
        spec = FileFinder(folder, (SourceFileLoader, [".py"])).find_spec(part)
        if spec is None:
            continue
        inside = list(spec.submodule_search_locations or ())
        if spec.loader is not None:
            return spec.origin or "", inside
        portions += inside
    return ("", portions) if portions else None


def _ask(names: Sequence[str], folders: Sequence[str], python: Sequence[str]) -> dict[str, Path | Missing]:
    try:
        answer = subprocess.run(
            [*python, "-c", _ASK, json.dumps(list(folders)), json.dumps(list(names))],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        files = json.loads(answer.stdout) if answer.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return _all(names, f"could not be looked for with {python[0]}: {str(error).splitlines()[0]}", python)
    if not isinstance(files, dict):
        said = answer.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or [f"exit {answer.returncode}"]
        return _all(names, f"could not be looked for with {python[0]}: {said[0]}", python)
    return {name: _place(files.get(name), folders, python) for name in names}


def _all(names: Sequence[str], reason: str, python: Sequence[str]) -> dict[str, Path | Missing]:
    hint = f"does '{' '.join(python)} -c pass' work? It is set by 'python' below [run]"
    return dict.fromkeys(names, Missing(reason=reason, hint=hint))


def _place(file: str | None, folders: Sequence[str], python: Sequence[str]) -> Path | Missing:
    if file is None:
        return Missing(reason="was not found", hint=f"looked in {', '.join(folders)} and the path of {python[0]}")
    return Path(file).resolve()
