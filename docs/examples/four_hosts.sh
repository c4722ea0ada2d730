#!/bin/bash
# A live run on four hosts of one machine: one network namespace per host, joined by a bridge, with latency by tc netem.
# Needs root and iproute2. The first argument is a scenario; all others are options of `coterie live`.
#
#   sudo docs/examples/four_hosts.sh gossip --set run.duration=30s
set -eu
scenario=$1
shift
hosts=(a b c d)
latency=${LATENCY:-20ms}  # one way, of each host
folder=$(mktemp -d)
bridge=coterie0

end() {
    for host in "${hosts[@]}"; do ip netns del "coterie-$host" 2>/dev/null || true; done
    ip link del $bridge 2>/dev/null || true
    rm -rf "$folder"
}
trap end EXIT
end
mkdir -p "$folder"

ip link add $bridge type bridge
ip link set $bridge up
number=1
for host in "${hosts[@]}"; do
    ip netns add "coterie-$host"
    ip link add "ct-$host" type veth peer name eth0 netns "coterie-$host"
    ip link set "ct-$host" master $bridge up
    ip -n "coterie-$host" address add 10.77.0.$number/24 dev eth0
    ip -n "coterie-$host" link set eth0 up
    ip -n "coterie-$host" link set lo up
    ip netns exec "coterie-$host" tc qdisc add dev eth0 root netem delay "$latency" 2>/dev/null \
        || echo "tc netem is not available: the hosts have no additional latency" >&2
    printf '[[host]]\nname = "%s"\naddress = "10.77.0.%d"\n' "$host" "$number" >> "$folder/hosts.toml"
    number=$((number + 1))
done

coterie live "$scenario" --hosts "$folder/hosts.toml" --make-certificates "$folder/certificates" "$@"
for host in d c b a; do  # the first host runs the coordinator, and starts last
    command=(ip netns exec "coterie-$host" coterie live "$scenario" --hosts "$folder/hosts.toml"
        --host "$host" --certificates "$folder/certificates" "$@")
    if [ "$host" = a ]; then "${command[@]}"; else "${command[@]}" & fi
done
wait
