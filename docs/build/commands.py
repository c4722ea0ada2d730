"""Generator of the page of the site with all commands and options, from their `--help` texts."""

from typing import Any

import typer

from docs.build.scenarios import markdown_table
from sim.cli.live import app

HEAD = """\
# Commands

This page lists all commands and options of `coterie`, with the texts of `coterie COMMAND --help`.
[Results](/results.md#results-folder) explains the exit codes.
"""


def commands_page() -> str:
    """Return the page as Markdown: each command's description, and a table of its arguments and options."""
    group: Any = typer.main.get_command(app)
    parts = [HEAD]
    for name, command in group.commands.items():
        context = typer.Context(command)
        found = [parameter.get_help_record(context) for parameter in command.params]
        rows = [[f"`{usage}`", meaning] for usage, meaning in filter(None, found)]
        parts.append(f"## coterie {name}\n\n{command.help}\n\n{markdown_table(['option', 'meaning'], rows)}")
    return "\n".join(parts)
