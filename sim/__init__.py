"""The simulator: clients and network in virtual time, batched training, and the results of runs."""
