"""Results that a report is to be made of: damaged files, and files of different runs, are refused."""

from pathlib import Path

from sim.results.store.run_directory import SPECIAL_TABLES, TABLES, TEXTS, RunDirectory


def load_checked(path: Path) -> RunDirectory:
    """The results in a directory, every file of which is there, whole, and of the same run. UserError."""
    directory = RunDirectory.load(path)
    for name in TEXTS:
        directory.file(name)
    for table in [*TABLES, *filter(directory.has, SPECIAL_TABLES)]:
        directory.table_path(table)
    return directory
