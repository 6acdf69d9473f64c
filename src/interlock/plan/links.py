"""References where a step may hold them: `inputs`, `with`, `map.over`, `route.input`.

Guarantee: every reference found comes with its place and what its value is wanted for.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET

from interlock.model.plan import Input, Reference
from interlock.model.workflow import Place
from interlock.plan import fields as f
from interlock.plan.akm import from_reference
from interlock.plan.diagnose import Source, shown
from interlock.plan.refs import PARAM_NAME, ReferenceSyntaxError, parse_item, parse_reference
from interlock.plan.scalars import to_json
from interlock.plan.yaml import Mapping, Node, Scalar
from interlock.plan.yaml import Sequence as ListNode

_REFERENCE_STARTS: Final = ("params.", "steps.")


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A reference in a step. `wants` is what its value must be."""

    ref: Reference
    place: Place
    what: str
    wants: Literal["any", "list", "primitive"] = "any"


def read_link(source: Source, node: Node, what: str) -> Link | None:
    """Read one reference."""
    if isinstance(node, ListNode):
        own = "make the list the default of a param, and write params.<name>"
        f.wrong(
            source, node, what, "a reference", own if what == "'over'" else "write params.<name> or steps.<id>.output"
        )
        return None
    written = f.text(source, node, what)
    if written is UNSET:
        return None
    try:
        return Link(ref=parse_reference(written), place=node.place, what=what)
    except ReferenceSyntaxError as error:
        source.error(node.place, "bad-reference", f"{what}: '{shown(written)}' {error}", error.hint)
        return None


def read_inputs(source: Source, node: Node) -> tuple[tuple[Input, ...], list[Link]]:
    """Read `inputs:`, a list of references or a mapping of names to references."""
    if isinstance(node, Mapping):
        named = [(entry.key.text, entry.value) for entry in node.entries]
        links = {name: read_link(source, value, f"the input '{shown(name)}'") for name, value in named}
    elif isinstance(node, ListNode):
        return _listed(source, node)
    else:
        f.wrong(source, node, "'inputs'", "a list of references or a mapping of names to references")
        return (), []
    found = {name: link for name, link in links.items() if link is not None}
    return tuple(Input(name=name, ref=link.ref) for name, link in found.items()), list(found.values())


def _listed(source: Source, node: ListNode) -> tuple[tuple[Input, ...], list[Link]]:
    found: dict[str, Link] = {}
    for item in node.items:
        link = read_link(source, item, "an entry of 'inputs'")
        if link is None:
            continue
        if link.ref.text in found:
            source.error(item.place, "duplicate-entry", f"'{link.ref.text}' stands twice in 'inputs'")
        found[link.ref.text] = link
    return tuple(Input(name=name, ref=link.ref) for name, link in found.items()), list(found.values())


def read_with(source: Source, node: Node, *, in_map: bool) -> tuple[dict[str, Reference | Any], list[Link]]:
    """Read `with:`; texts that start like references are references, at any depth, all else is literal.

    In a map, `item` and what is in it are references too.
    """
    written = f.mapping(source, node, "'with'")
    if written is UNSET:
        return {}, []
    links: list[Link] = []
    found: dict[str, Reference | Any] = {}
    for entry in written.entries:
        name = entry.key.text
        if not PARAM_NAME.fullmatch(name):
            source.error(entry.key.place, "bad-name", f"'{shown(name)}' cannot be the name of a param")
        found[name] = _bound(source, entry.value, f"'with.{shown(name)}'", links, in_map=in_map)
    return found, links


def _bound(source: Source, node: Node, what: str, links: list[Link], *, in_map: bool) -> Any:  # noqa: ANN401 - a reference or any JSON value
    node = from_reference(node) or node
    if isinstance(node, Scalar):
        item = parse_item(node.text) if in_map else None
        if item is not None:
            return item
        if not node.text.startswith(_REFERENCE_STARTS):
            return to_json(node, source)
        link = read_link(source, node, what)
        if link is None:
            return None
        links.append(link)
        return link.ref
    if isinstance(node, ListNode):
        return [_bound(source, item, what, links, in_map=in_map) for item in node.items]
    return {entry.key.text: _bound(source, entry.value, what, links, in_map=in_map) for entry in node.entries}
