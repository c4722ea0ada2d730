# %% [markdown]
# # A first run
#
# This notebook shows how to run a scenario and read its results. Fifty clients gossip their models. Each client trains on its own sixteen digits.

# %%
import coterie

run = coterie.run("gossip", set={"run.duration": "1 min"}, quiet=True)
run

# %% [markdown]
# The metrics are a polars data frame with one row per value.

# %%
run.metrics.filter(name="accuracy").select("time", "value").group_by("time", maintain_order=True).mean()

# %% [markdown]
# All messages and the activity of each device are also data frames.

# %%
run.events.group_by("event", maintain_order=True).len()

# %% [markdown]
# Repeat the run in a network that loses every fifth message, and compare the mean accuracies:

# %%
lossy = coterie.run("gossip", set={"run.duration": "1 min", "network.loss": 0.2}, quiet=True)
print(f"{run.summary['accuracy']['mean']:.3f} {lossy.summary['accuracy']['mean']:.3f}")
