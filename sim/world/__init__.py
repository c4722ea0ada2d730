"""The simulated world: who knows whom, wires, devices, and clients that come and go."""
