"""FedCS: as many clients as can answer one after the other before a deadline, and at least one.

Nishio and Yonetani, "Client Selection for Federated Learning with Heterogeneous Resources in Mobile Edge",
ICC 2019, algorithm 3. The times are those of a client's last answer; an unknown client counts as immediate.
"""

from dataclasses import dataclass

from coterie import Duration, RoundClient, RoundServer, RoundSettings, Vector


@dataclass(frozen=True)
class Trained:
    params: Vector
    samples: int
    seconds: float


class DeadlineServer(RoundServer):
    def setup(self):
        self.known = {}  # by client: seconds of the training, and of a transfer

    async def answer(self, client, number):
        start, answer = self.now, await super().answer(client, number)
        if answer is not None:
            self.known[client] = answer.seconds, (self.now - start - answer.seconds) / 2
        return answer

    def sample(self):
        left, chosen, downloaded, uploaded = list(self.peers), [], 0.0, 0.0

        def ends(client):
            """Return the times of the downloads and of the uploads if this client trains too."""
            training, transfer = self.known.get(client, (0.0, 0.0))
            return max(downloaded, transfer), max(uploaded, training) + transfer

        while left:
            client = min(left, key=lambda each: (sum(ends(each)), each))
            left.remove(client)
            if sum(ends(client)) < self.settings.deadline or not chosen:
                downloaded, uploaded = ends(client)
                chosen.append(client)
        return chosen


class FedCS(RoundClient):
    class Settings(RoundSettings):
        deadline: Duration = "5 s"

    server = DeadlineServer

    async def work(self, task):
        start = self.now
        self.params = await self.trained(task.params)
        return Trained(self.params, self.samples, self.now - start)
