"""Prototypes and features of MAPL's clients, early and late in a run (figures 4c to 6c of its paper)."""

import csv

import numpy as np

import coterie
from protocols.mapl.method import MAPLAsynchronous

LOOKS = (1, 5, 20)  # passes
prototypes: dict[int, dict[tuple[str, int], np.ndarray]] = {passes: {} for passes in LOOKS}
features: dict[int, dict[tuple[str, int], np.ndarray]] = {passes: {} for passes in LOOKS}


class Looked(MAPLAsynchronous):
    async def step(self):
        await super().step()
        passes = self.trainings
        if passes in LOOKS:
            all_of = self.part(self.params, "prototypes").numpy().reshape(self.compute.classes, -1)
            for label, mean in (await self.class_features(self.params)).items():
                prototypes[passes][self.name, label] = all_of[label]
                features[passes][self.name, label] = mean.numpy().ravel()


def points(passes):
    """Yield (passes, client, class, x, y) for each prototype of a class that a client has; x, y by SVD."""
    found = dict(sorted(prototypes[passes].items()))
    rows = np.stack(list(found.values()))
    rows -= rows.mean(axis=0)
    directions = np.linalg.svd(rows, full_matrices=False)[2][:2]
    for (client, label), (x, y) in zip(found, rows @ directions.T, strict=True):
        yield passes, client, label, x, y


def spread(found):
    """Return the mean distance of vectors from the mean of their class, relative to the overall mean."""
    at = np.stack(list(found.values()))
    classes = np.array([label for _, label in found])
    means = np.stack([at[classes == label].mean(axis=0) for label in classes])
    return np.linalg.norm(at - means, axis=1).mean() / np.linalg.norm(at - at.mean(axis=0), axis=1).mean()


if __name__ == "__main__":
    coterie.run("mapl_few", protocol=Looked, set={"run.budget.samples": 96 * 20}, quiet=True)
    rows = [row for passes in LOOKS for row in points(passes)]
    with open("prototypes.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("passes", "client", "class", "x", "y"), *rows])
    for passes in LOOKS:
        both = [spread(each[passes]) for each in (prototypes, features)]
        print(f"after {passes} passes: prototypes {both[0]:.2f}, features {both[1]:.2f}")
