"""The files of a run: where they go, how they are written and read, and whether they are whole."""
