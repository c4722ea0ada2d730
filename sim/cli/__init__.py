"""The command line: `commands` are those of `coterie`, `console` and `outline` say what is shown."""
