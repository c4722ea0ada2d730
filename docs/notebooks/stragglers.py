# %% [markdown]
# # Measure the cost of a straggler
#
# This notebook shows how to run and compare a sweep. In D-PSGD, clients wait for their neighbors in each round; in gossip, they do not wait.
# One of ten clients becomes 8 times slower. The intervals are wide because there are only two seeds.

# %%
import coterie

study = coterie.sweep(
    "gossip",
    set={
        "protocol.name": ["gossip", "dpsgd"],
        "devices.override": [[], [{"clients": [0], "slowdown": 8}]],
        "clients.count": 10,
        "run.duration": "20 s",
        "model.initialisation": "shared",
    },
    seeds=2,
    jobs=1,
    quiet=True,
)
study

# %%
compared = coterie.compare(study, metrics="accuracy")
compared.table.select("protocol.name", "devices.override", "mean", "low", "high")
