"""Choice by availability: in each round, the clients that the server has seen up for the least time train.

Abdelmoniem, Sahu, Canini, Fahmy, "REFL: Resource-Efficient Federated Learning", EuroSys 2023, prefers clients
that will be away soon, by their own forecasts. Here, the server forecasts from the times that it has seen.
"""

from coterie import RoundClient, RoundServer


class AvailabilityServer(RoundServer):
    def setup(self):
        self.since = dict.fromkeys(self.peers, self.now)  # by client that is up
        self.up_s = {}

    def peer_changed(self, peer, up):
        super().peer_changed(peer, up)
        if up:
            self.since[peer] = self.now
        elif peer in self.since:
            self.up_s[peer] = self.up_s.get(peer, 0.0) + self.now - self.since.pop(peer)

    def seconds(self, client):
        """Return the seconds for which the server has seen the client up."""
        return self.up_s.get(client, 0.0) + self.now - self.since[client]

    def sample(self):
        count = max(1, round(self.settings.fraction * len(self.peers)))
        shuffled = [self.peers[k] for k in self.rng.permutation(len(self.peers))]
        return sorted(shuffled, key=self.seconds)[:count]


class LeastAvailable(RoundClient):
    server = AvailabilityServer
