"""A fuzzer of the command `coterie`: spoiled input must be refused in words. `python -m tests.fuzz`."""
