"""Command line: `commands` defines those of `coterie`, `console` and `outline` format the output."""
