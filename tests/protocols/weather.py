"""Bad weather for the worlds of tests: what is added to their text, and settings."""

from tests.protocols.worlds import churn

WEATHER: dict[str, tuple[str, ...]] = {
    "5 % lost": ("", "network.link=datagram", "network.loss=0.05"),
    "30 % lost": ("", "network.link=datagram", "network.loss=0.3"),
    "straggler": ("\n[[devices.override]]\nclients = [2]\nslowdown = 20\n",),
    "churn": (
        churn("crash", 1, "3.3 s")
        + churn("rejoin", 1, "30 s", "fresh")
        + churn("join", 3, "12 s")
        + churn("crash", 2, "70 s"),
    ),
}
MINUTES = ("run.duration=180 s", "run.evaluate_every=180 s")
