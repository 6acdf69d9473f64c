"""The work of links.md and links-of.md: plain functions of one dictionary."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
FENCED = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)


def links(context: dict[str, Any]) -> list[str]:
    """Return the relative links of the page, each once, without their anchors."""
    text = Path(context["params"]["page"]).read_text(encoding="utf-8", errors="replace")
    found = (match.group(1).partition("#")[0] for match in LINK.finditer(FENCED.sub("", text)))
    return list(dict.fromkeys(link for link in found if link and not re.match(r"[a-z][a-z0-9+.-]*:|/", link)))


def broken(context: dict[str, Any]) -> list[str]:
    """Return those of the links that lead to no file or folder."""
    folder = Path(context["params"]["page"]).parent
    return [link for link in context["inputs"]["links"] if not (folder / unquote(link)).exists()]


def report(context: dict[str, Any]) -> str:
    """Return a line for each broken link, or say that there is none."""
    pages, found = context["inputs"]["pages"], context["inputs"]["found"]
    unread = [f"{page}: could not be read" for page, links in zip(pages, found, strict=True) if links is None]
    lines = [f"{page}: {link}" for page, links in zip(pages, found, strict=True) for link in links or ()]
    return "\n".join([*unread, *lines]) or f"all links of {len(pages)} pages lead somewhere"
