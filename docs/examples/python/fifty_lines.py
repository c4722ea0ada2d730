from contextlib import closing

from protocols.cobo.method import CoBo
from sim.core.assembly import Classes, ClientParts, SimulationParts, assemble
from sim.core.client_data import data_on
from sim.core.learning_settings import LearningSettings
from sim.core.process import simulating
from sim.core.rules import RunRules
from sim.files.data_folder import DataFolder
from sim.learning.data.digits import Digits
from sim.learning.engine import Engine, Optimizer
from sim.learning.models.mlp import LogisticRegression
from sim.learning.objectives import OBJECTIVES
from sim.learning.partitions.clusters import PermutedClusters
from sim.world.devices.device import CostModel
from sim.world.distributions import Constant
from sim.world.network import SimulatedNetwork
from sim.world.network_model import ConnectionModel, NetworkModel

SEED, NAMES = 1, [f"client-{i}" for i in range(6)]


class TwoSites(SimulatedNetwork):
    """A message takes 5 ms within a site of three clients, and 60 ms to the other site."""

    def fate(self, connection, pair_index):
        sites = {NAMES.index(name) // 3 for name in connection.pair}
        return (0.060 if len(sites) == 2 else 0.005), False, None  # seconds, lost, duplicated


clusters = PermutedClusters(kind="permuted-clusters", sizes=(3, 3), samples_per_client=60)
digits = Digits(name="digits", partition=clusters)
samples = digits.load(len(NAMES), SEED, DataFolder())
own, validation = digits.share_out(samples, len(NAMES), SEED)
data = data_on("cpu", samples, own.train, validation, own.test, own.label_maps)
model = LogisticRegression(name="logistic-regression").architecture(samples.input_shape, samples.outputs)
loss, sgd = OBJECTIVES["classification"], Optimizer("sgd")
training = LearningSettings(model, loss, samples.outputs, sgd, learning_rate=0.1, batch_size=16)
with simulating():
    parts = SimulationParts(
        rules=RunRules(settings=CoBo.Settings(), seed=SEED, duration_s=30.0, evaluate_every_s=10.0),
        method=CoBo,
        engine=Engine(data, seed=SEED),
        clients=[ClientParts(name=n, training=training, cost=CostModel(step_time_s=0.1)) for n in NAMES],
        network=NetworkModel(ConnectionModel(Constant(value=0.005))),
        classes=Classes(network=TwoSites),
    )
    with closing(assemble(parts)) as simulation:
        simulation.run()
print(simulation.trace.hash(), simulation.observer.metrics.latest("accuracy"))
