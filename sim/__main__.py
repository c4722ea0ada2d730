"""The command `coterie`, also as `python -m sim`. Ctrl-C is handled even before torch is imported."""

from sim.run.interrupts import answer, exit_at_once


def main() -> None:
    """Entry point of the installed command."""
    answer(exit_at_once)
    from sim.cli.studies import app

    app()


if __name__ == "__main__":
    main()
