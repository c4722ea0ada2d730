"""Files from outside: data sets, measured traces, matrices, graphs; read within limits, refused in words."""
