"""Positions of the prototypes of MAPL's clients, early and late in a run (figures 4c to 6c of its paper)."""

import csv

import numpy as np

import coterie
from protocols.mapl.method import MAPLAsynchronous

LOOKS = (1, 5, 20)  # passes
kept: dict[int, dict[str, np.ndarray]] = {passes: {} for passes in LOOKS}


class Looked(MAPLAsynchronous):
    async def step(self):
        await super().step()
        if self.trainings in kept:
            prototypes = self.part(self.params, "prototypes").numpy()
            kept[self.trainings][self.name] = prototypes.reshape(self.compute.classes, -1)


def points(clusters):
    """Yield (passes, client, class, x, y) for each prototype of a class that a client has; x, y by SVD."""
    for passes, found in kept.items():
        names = sorted(found)
        own = [(name, k) for name in names for k in range(10) if k // 5 == clusters[int(name.split("-")[1])]]
        rows = np.stack([found[name][k] for name, k in own])
        rows -= rows.mean(axis=0)
        directions = np.linalg.svd(rows, full_matrices=False)[2][:2]
        for (name, k), (x, y) in zip(own, rows @ directions.T, strict=True):
            yield passes, name, k, x, y


def spread(rows):
    """Return the mean distance of prototypes from their class mean, relative to the overall mean."""
    at = np.array([row[3:] for row in rows], dtype=float)
    classes = np.array([row[2] for row in rows])
    means = np.stack([at[classes == k].mean(axis=0) for k in classes])
    return np.linalg.norm(at - means, axis=1).mean() / np.linalg.norm(at - at.mean(axis=0), axis=1).mean()


if __name__ == "__main__":
    run = coterie.run("mapl_few", protocol=Looked, set={"run.budget.samples": 96 * 20}, quiet=True)
    rows = list(points(run.summary["clusters"]))
    with open("prototypes.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("passes", "client", "class", "x", "y"), *rows])
    for passes in LOOKS:
        print(f"after {passes} passes: {spread([row for row in rows if row[0] == passes]):.2f}")
