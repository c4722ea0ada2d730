"""What is made of the results of many clients looks at each of them, not at each beside each other."""

import numpy as np

from sim.results.population import ClientPanelData
from sim.run.summary import _finite


class Counted(str):
    """A name that counts how often it is compared."""

    compared = 0
    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)


def test_whose_values_count_is_found_without_a_look_at_all_others() -> None:
    names = [f"client-{number}" for number in range(500)]
    up = dict.fromkeys(map(Counted, names))
    assert _finite(dict.fromkeys(names, 1.0), up) == [1.0] * 500
    assert Counted.compared <= 500


def test_the_last_value_of_each_client_is_that_of_its_last_measurement() -> None:
    nothing = np.nan
    panel = ClientPanelData(
        np.arange(3.0), np.array([[1, 2, nothing], [nothing, 3, nothing], [nothing, 4, nothing]])
    )
    assert panel.last.tolist()[:2] == [1.0, 4.0]
    assert np.isnan(panel.last[2])
