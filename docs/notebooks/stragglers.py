# %% [markdown]
# # What a straggler costs
#
# D-PSGD waits for its neighbours in each round, gossip for nobody. One of ten clients becomes 8 times slower. Two seeds are few: the intervals
# say so.

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
