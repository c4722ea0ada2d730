"""Live runs: the same actors on real sockets, in wall-clock time (`coterie live`).

Each process runs the simulator's code for its clients: the same loop, network and devices. The loop waits for
the wall clock instead of jumping (`loop`). A message to a client of another process goes over TCP when it is
sent, and arrives at the time of the simulated network (`network`, `wire`). A coordinator starts the
processes, kills the processes of crashing clients, and merges the results (`coordinator`, `parts`).
"""
