"""The simulated world: networks, devices, topologies, memberships, and clients that come and go.

- Network: `network` delivers messages over each `connection`. `network_model`, `latency/`, `loss`,
  `partitions` and `bandwidths` describe it; `fair_sharing` shares bandwidth.
- Devices: `devices/`; `timeline` keeps what they did.
- Who is there: `churn/`. Who knows whom: `topology/`, `membership/`.

Most kinds that a scenario may name are one class: its fields are the keys.
"""
