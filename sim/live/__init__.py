"""The same actors on real sockets and the wall clock: `coterie live`.

Each process runs the simulator's own code for its own clients: the same loop, network and devices. The loop
waits for the wall clock instead of jumping (`loop`). What the network carries to a client of another process
goes over TCP at its departure, and arrives when the simulated network says (`network`, `wire`). A coordinator
starts the processes, ends those whose clients crash, and puts the results together (`coordinator`, `parts`).
"""
