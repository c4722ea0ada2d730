"""The simulated world: wires, devices, who knows whom, and clients that come and go.

`network` carries messages over `wire`s, as `links` (`latency/`, `loss`, `partitions`, `bandwidths`) say, with
`fair_sharing` of what is narrow. `devices` compute as fast as `speeds` and `slowness` say. `churn`,
`churn_processes` and `sessions` bring clients and take them away; `topology` (`graphs`) and `membership/` say
who knows whom. Most kinds that a scenario may name are one class: its keys, and what it does.
"""
