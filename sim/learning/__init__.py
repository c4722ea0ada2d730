"""Data sets, partitions, models, objectives and the batched engine that trains them."""
