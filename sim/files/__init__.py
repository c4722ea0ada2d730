"""Input files: data sets, measured traces, matrices, graphs; read within limits and validated."""
