"""SCooL's graph where all infer at once, and where somebody leaves whom nobody will ask again."""

import numpy as np
import pytest

from protocols.scool.priors import BlockPrior
from protocols.scool.settings import SCooLSettings
from tests.protocols.test_scool import FOUR_ROUNDS, WITHOUT_ROUNDS, graph, scool
from tests.protocols.test_scool_inference import partition_of, planted
from tests.protocols.worlds import churn, ran


class OfAClient:
    """What a prior needs of its client."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def _add_component(self, component: object) -> None:
        """Nobody leaves."""


@pytest.mark.parametrize("seed", range(6))
def test_blocks_part_where_all_infer_at_once(seed: int) -> None:
    """In rounds each goes by what the others were in the last one: groups that share a block must not leave
    it together for the same one, again and again."""
    clients, groups = 20, 5
    evidence = planted(groups, 4, 0.2, 4.5) + np.log(10)
    names = [f"client-{i:02}" for i in range(clients)]
    rng = np.random.default_rng(seed)
    settings = SCooLSettings(blocks=groups)
    priors = [BlockPrior(OfAClient(child), settings) for child in rng.spawn(clients)]  # type: ignore[arg-type]
    for _ in range(20):
        told = [prior.beliefs_of_all(names) for prior in priors]
        for i, prior in enumerate(priors):
            others = [j for j in range(clients) if j != i]
            for j in others:
                prior.receive(names[j], told[j][names[i]])
            prior.infer({names[j]: float(evidence[i, j]) for j in others}, 0.0)
    blocks = np.array([prior.membership.argmax() for prior in priors])
    assert partition_of(blocks) == partition_of(np.repeat(np.arange(groups), 4))


@pytest.mark.parametrize("prior", ["sbm", "attention"])
def test_who_leaves_weighs_nothing_for_those_that_have_finished(prior: str) -> None:
    """They infer no more, while client 3 goes on."""
    text = FOUR_ROUNDS.replace('"4 iterations"', '"1 s"') + churn("leave", 0, "6 s")
    options = (
        f"protocol.prior={prior}",
        "protocol.local_steps=1",
        "devices.override=[{clients=[3], slowdown=8}]",
    )
    with ran(text, *WITHOUT_ROUNDS, *options) as world:
        assert scool(world, 1).finished and "client-0" not in scool(world, 1).peers
        assert graph(world)[1, 2] > 0
        assert not graph(world)[:, 0].any()
