"""Just enough of the shell's grammar to warn of a pipe whose failure a plain `sh` would not notice."""

from __future__ import annotations

import re
from typing import Final

_PART: Final = r"(?s:\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"|(?<![^\s;&|()])#[^\n]*|\|\|?&?|.)"


def has_pipe(text: str) -> bool:
    """Tell whether `text` has a `|` that is neither quoted, in a comment, nor part of `||`."""
    return any(match.group() in {"|", "|&"} for match in re.finditer(_PART, text))
