"""`interlock schema`: the JSON Schema of a workflow's front matter, for editors."""

from __future__ import annotations

from pathlib import Path

import click

from interlock.cli.options import example, json_option
from interlock.cli.output import say, write_json
from interlock.driver.project import STATE_NAME, open_state, project_at
from interlock.plan.frontmatter import schema_text
from interlock.views.values import SCHEMA


@click.command(
    epilog=example("interlock schema --out .interlock/frontmatter.schema.json")
    + "\n\n\b\nIn the front matter, editors with a YAML language server then take:\n"
    "  # yaml-language-server: $schema=.interlock/frontmatter.schema.json"
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write it to a file.")
@json_option("Print JSON: with --out what was written, else the schema, which is JSON anyway.")
def command(out: Path | None, *, as_json: bool) -> None:
    """Print the JSON Schema of a workflow's front matter; editors complete and check with it."""
    text = schema_text()
    if out is None:
        say(text.rstrip("\n"))
        return
    if out.parent.name == STATE_NAME:
        # private, and told to git, as whoever makes it first has to
        open_state(project_at(out.parent.parent))
    else:
        out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    if as_json:
        write_json({"schema": SCHEMA, "did": "wrote", "path": str(out)})
    else:
        say(f"wrote {out}")
