"""`interlock completion`: the script that teaches a shell to complete commands, options and run ids."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from interlock.cli.options import example
from interlock.cli.output import say


@click.command(
    epilog=example(
        'bash, in ~/.bashrc:                 eval "$(interlock completion bash)"',
        'zsh, in ~/.zshrc:                   eval "$(interlock completion zsh)"',
        "fish, once:                         interlock completion fish > ~/.config/fish/completions/interlock.fish",
    )
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell: commands, options, files and run ids."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for '{shell}'", context)
    root = context.find_root()
    say(kind(root.command, {}, "interlock", "_INTERLOCK_COMPLETE").source())
