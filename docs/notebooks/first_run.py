# %% [markdown]
# # A first run
#
# Fifty clients gossip their models. Each trains on its own sixteen digits.

# %%
import coterie

run = coterie.run("gossip", set={"run.duration": "1 min"}, quiet=True)
run

# %% [markdown]
# What was measured is a polars data frame: one row for each number.

# %%
run.metrics.filter(name="accuracy").select("time", "value").group_by("time", maintain_order=True).mean()

# %% [markdown]
# So are all messages, and what each device did.

# %%
run.events.group_by("event", maintain_order=True).len()

# %% [markdown]
# The same run in a network that loses every fifth message, and the difference:

# %%
lossy = coterie.run("gossip", set={"run.duration": "1 min", "network.loss": 0.2}, quiet=True)
print(f"{run.summary['accuracy']['mean']:.3f} {lossy.summary['accuracy']['mean']:.3f}")
