"""Energy of a run: computed from times of devices and bytes of messages, with the constants of a scenario."""
