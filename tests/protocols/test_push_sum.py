"""Push-sum: it averages, nothing gets lost, and what clients no longer bring in fades."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.shared.push_sum import PushSumMass


def gossiped(masses: list[PushSumMass], rng: np.random.Generator, loss: float = 0.0) -> list[PushSumMass]:
    """After everybody has sent half of its mass to somebody else."""
    kept = [mass.half for mass in masses]
    for i, mass in enumerate(masses):
        other = int((i + rng.integers(1, len(masses))) % len(masses))
        if rng.random() >= loss:
            kept[other] = kept[other].with_(mass.half)
    return kept


@pytest.mark.long
@given(st.integers(2, 12), st.integers(0, 2**32 - 1))
def test_mass_is_kept_and_everybody_learns_the_average(clients: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(clients, 3))
    masses = [PushSumMass(row, 1.0) for row in numbers]
    for _ in range(100):
        masses = gossiped(masses, rng)
    np.testing.assert_allclose(sum(mass.numbers for mass in masses), numbers.sum(axis=0), atol=1e-9)
    np.testing.assert_allclose(sum(mass.weight for mass in masses), clients)
    for mass in masses:
        np.testing.assert_allclose(mass.average, numbers.mean(axis=0), atol=1e-6)


def test_new_numbers_replace_the_old_ones_of_the_living_and_of_the_dead() -> None:
    rng = np.random.default_rng(1)
    masses = [PushSumMass(np.full(1, 100.0), 1.0) for _ in range(10)]
    for _ in range(20):
        masses = gossiped(masses, rng)
    masses = masses[:6]  # what the others held is gone, what they sent is not
    for _ in range(100):
        masses = gossiped([mass.renewed(np.full(1, 1.0), 0.1) for mass in masses], rng, loss=0.3)
    np.testing.assert_allclose([mass.average[0] for mass in masses], 1.0, atol=0.01)


def test_own_numbers_count_a_little_more_when_mass_is_renewed() -> None:
    rng = np.random.default_rng(2)
    numbers = np.arange(20.0)
    masses = [PushSumMass(numbers[i : i + 1], 1.0) for i in range(20)]
    found = []
    for number in range(400):
        renewed = [mass.renewed(numbers[i : i + 1], 0.05) for i, mass in enumerate(masses)]
        masses = gossiped(renewed, rng, loss=0.2)
        if number >= 100:
            found.append([mass.average[0] for mass in masses])
    estimates = np.mean(found, axis=0)
    assert np.abs(estimates - numbers.mean()).max() < 3.0 and np.corrcoef(estimates, numbers)[0, 1] > 0
