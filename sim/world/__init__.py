"""The simulated world: time, chance, who knows whom, wires, devices, and clients that come and go."""
