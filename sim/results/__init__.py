"""Results of a run: trace, metrics, results folder and report."""
