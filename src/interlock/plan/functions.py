"""Whether a module's source defines a function, told without importing it.

Guarantee: says no only when it is sure; a module that makes names at run time is given the benefit.
"""

from __future__ import annotations

import ast
from typing import Final

_DYNAMIC: Final = frozenset({"globals", "exec", "setattr", "vars", "__getattr__"})


def defined_names(text: bytes) -> frozenset[str] | None:
    """Return the names that the module surely has, None when more may appear or the text can't be read."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # the target's Python may be newer than ours
        return None
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names.update(alias.asname or alias.name.partition(".")[0] for alias in aliases)
            case ast.Name(id=name) if name in _DYNAMIC:
                return None
            case _:
                pass
    return None if names & (_DYNAMIC | {"*"}) else frozenset(names)
