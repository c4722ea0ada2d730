"""Command line: `commands` defines the commands, `console` and `outline` format the output."""
