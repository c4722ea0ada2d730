"""The page of the site that has all commands and their options, as `--help` has them."""

from typing import Any

import typer

from docs.build.scenarios import markdown_table
from sim.cli.studies import app

HEAD = """\
# Commands

All commands and options of `coterie`, as `coterie COMMAND --help` has them.
[Results](/results.md#results-folder) says what the exit codes mean.
"""


def commands_page() -> str:
    """Markdown: of each command what it does, and a table of its arguments and options."""
    group: Any = typer.main.get_command(app)
    parts = [HEAD]
    for name, command in group.commands.items():
        context = typer.Context(command)
        found = [parameter.get_help_record(context) for parameter in command.params]
        rows = [[f"`{usage}`", meaning] for usage, meaning in filter(None, found)]
        parts.append(f"## coterie {name}\n\n{command.help}\n\n{markdown_table(['option', 'meaning'], rows)}")
    return "\n".join(parts)
