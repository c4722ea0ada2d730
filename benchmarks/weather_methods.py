"""The methods of `benchmarks.weather`, with their settings, in families that are measured alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fidelity import Overrides

DIVSHARE = Path(__file__).parents[1] / "docs" / "examples" / "divshare.py"


@dataclass(frozen=True)
class Method:
    """What differs from the scenario.

    control: the method without collaboration that it is held against; None for one that is such itself.
    """

    overrides: Overrides
    has_server: bool = False
    control: str | None = "local"


@dataclass(frozen=True)
class Family:
    """Methods with the same model and labels, in runs of the same virtual time.

    clusters: sizes of the clusters, which contradict each other.
    """

    title: str
    seconds: float
    clusters: Sequence[int]
    overrides: Overrides
    methods: dict[str, Method]


def _both(
    name: str, *overrides: str, control: str = "local", variant: str | None = None
) -> dict[str, Method]:
    """A method's two forms."""
    label = name if variant is None else f"{name} ({variant})"
    return {
        f"{label}, {mode}": Method(_form(name, mode, *overrides), control=control)
        for mode in ("synchronous", "asynchronous")
    }


def _alone(name: str, *overrides: str) -> dict[str, Method]:
    """Each client by itself, as it trains in this method."""
    form = _form(name, "asynchronous", "protocol.alone=true", *overrides)
    return {f"{name}, alone": Method(form, control=None)}


def _form(name: str, mode: str, *overrides: str) -> Overrides:
    return [f"protocol.name={name}", f"protocol.mode={mode}", *overrides]


def _server(name: str, *overrides: str, control: str = "local") -> dict[str, Method]:
    return {name: Method([f"protocol.name={name}", _STEPS, *overrides], has_server=True, control=control)}


def _one(name: str, *overrides: str) -> dict[str, Method]:
    """A method without a server that has one form."""
    return {name: Method([f"protocol.name={name}", *overrides])}


_STEPS = "protocol.local_steps=10"  # between two exchanges of whoever makes them in rounds
_COBO = [
    "protocol.rho=0.2",
    "protocol.gamma=0.1",
    "protocol.sampling=mixed",
    "protocol.constant_iterations=200",
]
_MAPL = [
    "protocol.temperature=0.2",
    "protocol.warm_up=10",
    "protocol.similarity=per-class",
    "protocol.confidence=none",
    "protocol.degree_gradient=false",
    "protocol.beta=1.2",
    "protocol.graph_learning_rate=1.0",
]
_SCOOL = ["protocol.aggregation=shares", "protocol.judged_on=train", "protocol.keep=0.5", _STEPS]
_L2C = [
    "protocol.hidden=[8]",  # so that the broker has time for the rounds: each trains the hypernetwork
    "protocol.rounds=100",
    "protocol.newcomer_rounds=20",
    "protocol.search_steps=10",
    "protocol.floor=0.3",
    "protocol.hypernetwork_learning_rate=0.2",
    "protocol.patience=10 s",
]
_HELD_BACK = "data.validation_share=0.2"  # by which some methods judge models
_LOCAL_80 = "local, of 80 %"
_GOSSIP = ["protocol.name=gossip", _STEPS, 'protocol.period="1.5 s"']
_MOMENTUM = ["training.momentum=0.9", "training.learning_rate=0.01"]
FAMILIES = (
    Family(
        "Personal models",
        100.0,
        (5, 5),
        [],
        {
            "local": Method(["protocol.name=local"], control=None),
            _LOCAL_80: Method(["protocol.name=local", _HELD_BACK], control=None),
            **_server("oracle"),
            **_both("cobo", *_COBO),
            **_both("scool", "protocol.prior=sbm", *_SCOOL, variant="sbm"),
            **_both(
                "scool", "protocol.prior=attention", "protocol.temperature=2", *_SCOOL, variant="attention"
            ),
            **_both("federico", "protocol.losses=mean", "protocol.temperature=0.3"),
            **_both("learn-to-collaborate", *_L2C, _HELD_BACK, control=_LOCAL_80),
            **_both("meta-l2c", _STEPS, "protocol.temperature=0.3", _HELD_BACK, control=_LOCAL_80),
            **_one("dada", "protocol.mu_2=0.5"),
            **_one("federated-clustering", "protocol.clusters=2"),
            **_server("ditto"),
            **_server("fedavg-plus"),
            **_server("ifca", "protocol.models=2"),
            **_server("fedem", "protocol.models=2"),
            **_server("fedfomo", _HELD_BACK, control=_LOCAL_80),
            **_server("clustered-fl"),
            **_server("pfedme", "protocol.strength=2", "protocol.outer_rate=0.3"),
            **_server("per-fedavg", "protocol.adaptation_rate=0.05"),
            **_server("pfedhn", "protocol.outer_rate=0.1", "protocol.hidden=[32]"),
        },
    ),
    Family(
        "One model for all",
        100.0,
        (10,),
        [],
        {
            "local": Method(["protocol.name=local"], control=None),
            **_both("dpsgd", _STEPS),
            **_alone("dfedavgm", _STEPS, *_MOMENTUM),
            **_both("dfedavgm", _STEPS, *_MOMENTUM, control="dfedavgm, alone"),
            **_both("cga"),
            "divshare": Method([f"protocol.name={DIVSHARE}:DivShare", _STEPS]),
            "gossip, average": Method(_GOSSIP),
            "gossip, by age": Method([*_GOSSIP, "protocol.merge=age"]),
            **_server("fedavg"),
            **_server("q-ffl"),
            **_server("afl"),
        },
    ),
    Family(
        "Decoupled models",
        40.0,
        (5, 5),
        [
            'model={name="decoupled",backbones=["deep-mlp"],features=64,projection_hidden=64}',
            "training.optimizer=adam",
            "training.learning_rate=0.002",
        ],
        {
            "local": Method(["protocol.name=local", _STEPS], control=None),
            **_alone("mapl", *_MAPL),
            **_both("mapl", *_MAPL, control="mapl, alone"),
            **_both("mapl-plus", *_MAPL, control="mapl, alone"),
            **_server("fedsim"),
            **_server("fedproto"),
            **_server("fedclassavg", "protocol.temperature=0.2"),
            **_server("pfedsim", "protocol.warm_up=10"),
            **_server("fedper"),
            **_server("lg-fedavg"),
            **_one("spdb", _STEPS, "training.optimizer=sgd", "training.learning_rate=0.05"),
        },
    ),
)
