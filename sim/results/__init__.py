"""What a run leaves behind: its trace, its metrics, the result directory and the report."""
