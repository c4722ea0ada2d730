"""The simulated world: networks, devices, topologies, memberships, and clients that come and go.

- Network: `network` delivers messages over each `wire`. `links`, `latency/`, `loss`, `cuts` and `bandwidths`
  describe it; `fair_sharing` shares bandwidth.
- Devices: `devices`, with `speeds` and `slowness`; `timeline` keeps what they did.
- Who is there: `churn`, `churn_processes`, `sessions`. Who knows whom: `topology`, `graphs`, `membership/`.

Most kinds that a scenario may name are one class: its fields are the keys.
"""
