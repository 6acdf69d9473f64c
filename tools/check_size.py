"""Holds the house's measures: functions of at most 60 lines, files of at most 400, a docstring at the top of each.

Tests need no docstring: their names are sentences. Prints one line per fault and exits 1 when there is one. `EXCEPTIONS` is the whole list of what may be larger,
with the reason; an exception that is no longer needed is a fault too.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_FUNCTION_LINES = 60
MAX_FILE_LINES = 400
MAX_OPENING_LINES = 12
FOLDERS = ("src", "tests", "tools", "bench", "examples")

EXCEPTIONS: dict[str, str] = {
    "src/interlock/errors.py::opening": "it draws the tree of errors, one line each",
}
"""`path`, `path::function` or `path::opening` (relative to the root) to the reason why it may be larger."""


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield every function and method, nested ones included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def faults(name: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield (key, message) for each measure that the Python file `name` with this text breaks."""
    tree = ast.parse(text)
    lines = text.count("\n")
    if lines > MAX_FILE_LINES:
        yield name, f"{name}:1: {lines} lines; at most {MAX_FILE_LINES}: split it by subject"
    opening = ast.get_docstring(tree)
    if opening is None and not name.startswith("tests/"):
        yield name, f"{name}:1: no docstring at the top: say what the file is for and what it guarantees"
    elif opening is not None and opening.count("\n") >= MAX_OPENING_LINES:
        yield f"{name}::opening", f"{name}:1: the opening docstring has more than {MAX_OPENING_LINES} lines"
    for function in functions(tree):
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        if length > MAX_FUNCTION_LINES:
            key = f"{name}::{function.name}"
            yield key, f"{name}:{function.lineno}: {function.name} has {length} lines; at most {MAX_FUNCTION_LINES}"


def check(root: Path, exceptions: dict[str, str]) -> list[str]:
    """Return what is wrong below `root`, sorted."""
    found: list[str] = []
    used: set[str] = set()
    for path in sorted(p for folder in FOLDERS for p in (root / folder).rglob("*.py")):
        name = path.relative_to(root).as_posix()
        for key, message in faults(name, path.read_text(encoding="utf-8")):
            if key in exceptions:
                used.add(key)
            else:
                found.append(message)
    found += [f"{key}: is an exception in tools/check_size.py, but needs none" for key in exceptions.keys() - used]
    return sorted(found)


def main() -> int:
    """Print the faults."""
    found = check(ROOT, EXCEPTIONS)
    print("\n".join(found) if found else "all files and functions keep their measure")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
