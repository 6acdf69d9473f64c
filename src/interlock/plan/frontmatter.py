"""The JSON Schema of a workflow's front matter, as shipped in the package for editors.

Guarantee: it knows exactly the keys that the parser knows; what it accepts of form the parser accepts too, but
for what only a whole file can tell, such as whether a step that is named exists.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any, Final

_FILE: Final = "frontmatter.schema.json"


def schema_text() -> str:
    """Return the schema as it lies in the package: JSON text, indented, ending in a newline."""
    return resources.files(__package__).joinpath(_FILE).read_text(encoding="utf-8")


def schema() -> dict[str, Any]:
    """Return the schema as a value."""
    found: dict[str, Any] = json.loads(schema_text())
    return found
