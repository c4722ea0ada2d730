"""The simulated world: network, devices, topology, membership and churn.

- Network: `network` delivers messages over each `connection`. `network_model`, `latency/`, `loss`,
  `partitions` and `bandwidths` describe the network; `fair_sharing` shares bandwidth.
- Devices: `devices/`; `timeline` records when a device was busy or down.
- Presence of clients: `churn/`. Peers of clients: `topology/`, `membership/`.

Most kinds in a scenario are one class, and the fields of the class are the keys of the kind.
"""
