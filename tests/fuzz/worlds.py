"""Short forms of the shipped scenarios, each of which takes about a second."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SCENARIOS = Path(__file__).parents[2] / "scenarios"

_SECONDS = {"run.duration": "2 s", "run.evaluate_every": "500 ms"}
_STEPS = {"run.iterations": 2, "run.evaluate_every": "1 iterations"}
_MAPL = _STEPS | {
    "clients.count": 4,
    "data.partition.images_per_class": 4,
    "data.partition.test_images_per_class": 2,
    "model.backbones": ["small-cnn", "small-mlp"],
    "model.features": 8,
    "model.projection_hidden": 8,
    "training.batch_size": 4,
}
_SCOOL = {"run.budget.steps": 6, "run.evaluate_every": "2 iterations"} | {
    "data.partition.samples_per_client": 10,
    "data.test_samples": 4,
    "protocol.local_steps": 2,
    "protocol.keep_after": 1,
}
_L2C = {"protocol.rounds": 2, "protocol.search_steps": 1, "protocol.hidden": [4]}
_LM = _STEPS | {
    "model": {"name": "transformer", "width": 8, "depth": 1},
    "data.test_windows": 4,
    "training.batch_size": 2,
}
SHORT: Mapping[str, Mapping[str, Any]] = {
    "cobo_cross_device": _STEPS
    | {
        "clients.count": 10,
        "data.partition.sizes": [1] * 10,
        "model.width": 8,
        "model.groups": 4,
        "training.batch_size": 4,
    },
    "cobo_cross_silo": _STEPS | {"data.partition.samples_per_client": 20, "data.test_samples": 10},
    "cobo_quadratics": _STEPS | {"run.iterations": 10, "run.evaluate_every": "5 iterations"},
    "dpsgd_asynchronous": _SECONDS,
    "dpsgd_synchronous": _SECONDS,
    "fedavg": _SECONDS
    | {"churn.0.at": "500 ms", "churn.1.at": "700 ms", "churn.2.at": "1 s", "churn.3.at": "1.5 s"}
    | {"protocol.local_steps": 2, "protocol.patience": "500 ms"},
    "federico": _STEPS | {"data.partition.samples_per_client": 20, "data.test_samples": 10},
    "federico_full": _STEPS
    | {"data.partition.samples_per_client": 10, "data.test_samples": 10, "model.channels": [4]}
    | {"training.batch_size": 4},
    "gossip": _SECONDS | {"clients.count": 12},
    "l2c_adult": _SECONDS | _L2C,
    "l2c_churn": _SECONDS
    | _L2C
    | {"churn.0.at": "300 ms", "churn.1.at": "700 ms", "churn.2.at": "1 s", "churn.3.at": "1.5 s"}
    | {"data.samples": 40, "data.test_samples": 10},
    "l2c_cifar10": _SECONDS
    | _L2C
    | {"data.partition.samples_per_client": 20, "data.test_samples": 10, "model.features": 8}
    | {"training.batch_size": 10},
    "l2c_fashion_mnist": _SECONDS | _L2C | {"data.test_samples": 10},
    "l2c_synthetic": _SECONDS | _L2C | {"data.samples": 40, "data.test_samples": 10},
    "lm_languages": _LM,
    "lm_scarce": _LM,
    "mapl": _MAPL,
    "mapl_churn": _SECONDS
    | {"churn.0.at": "500 ms", "churn.1.at": "1 s", "protocol.warm_up": 2}
    | {"data.partition.images_per_class": 5, "model.features": 8, "model.projection_hidden": 8},
    "mapl_few": _MAPL | {"model.backbones": ["small-mlp"]},
    "mapl_full": _MAPL,
    "personalized": _SECONDS
    | {"data.partition.samples_per_client": 20, "data.test_samples": 20, "model.features": 8}
    | {"protocol.local_steps": 2, "protocol.patience": "500 ms"},
    "quickstart": _SECONDS | {"churn.0.at": "500 ms", "churn.1.at": "1 s"},
    "scool_churn": _SECONDS
    | {"churn.0.at": "500 ms", "churn.1.at": "1 s", "protocol.local_steps": 2, "protocol.keep_after": 2},
    "scool_full": _STEPS
    | {"clients.count": 5, "data.partition.samples_per_client": 4, "training.batch_size": 2}
    | {"model": {"name": "logistic-regression"}, "data.test_samples": 4},
    "scool_non_iid": _SCOOL,
    "scool_sbm": _SCOOL,
    "world_flapping": _SECONDS
    | {"network.partition.0.start": "500 ms", "network.partition.0.end": "2 s"}
    | {"network.partition.0.flapping.period": "1 s"},
    "world_flash_crowd": _SECONDS | {"churn.0.at": "500 ms", "churn.0.spread": "1 s"},
    "world_phones": _SECONDS | {"clients.count": 12, "devices.periodic.period": "1 s"},
    "world_planet": _SECONDS | {"clients.count": 10},
    "world_spot": _SECONDS | {"churn_process.0.speedup": 7200},
}
"""What is changed in each scenario; a new one needs an entry."""


def short(name: str) -> dict[str, Any]:
    """The contents of the short form of a shipped scenario."""
    table = tomllib.loads((SCENARIOS / f"{name}.toml").read_text(encoding="utf-8"))
    for key, value in SHORT[name].items():
        *above, last = key.split(".")
        owner: Any = table
        for part in above:
            owner = owner[int(part)] if isinstance(owner, list) else owner[part]
        owner[last] = value
    return table
