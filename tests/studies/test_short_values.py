"""Values of axes that are lists of tables."""

import json

import pytest

from sim.studies.index import Value
from sim.studies.short_values import short_values

JOIN = {"at": "1 min", "event": "join", "clients": [11], "spread": "0 s"}
CRASH = {"at": "50000001 us", "event": "crash", "clients": [8, 9], "spread": "0 s"}


@pytest.mark.parametrize(
    ("values", "short"),
    [
        ([[JOIN], [JOIN, CRASH]], ["unchanged", "crash of 8, 9 at 50 s"]),
        (
            [[CRASH], [JOIN], [CRASH]],
            ["crash of 8, 9 at 50 s", "join of 11 at 1 min", "crash of 8, 9 at 50 s"],
        ),
        (
            [[{"start": "1 s", "groups": [[0, 1], [2]]}, JOIN], [JOIN], "-"],
            ["start 1 s, groups [[0, 1], [2]]", "unchanged", "-"],
        ),
        ([[JOIN | {"spread": "1 s"}], [JOIN]], ["join of 11 at 1 min", "join of 11 at 1 min (2)"]),
        (
            [[JOIN | {"spread": f"{seconds} s"}] for seconds in (1, 2, 3, 1)],
            [
                "join of 11 at 1 min",
                "join of 11 at 1 min (2)",
                "join of 11 at 1 min (3)",
                "join of 11 at 1 min",
            ],
        ),
        ([0.1, 0.2], [0.1, 0.2]),
        (["mlp", "[{not json" + "x" * 50], ["mlp", "[{not json" + "x" * 50]),
    ],
)
def test_lists_of_tables_are_named_by_the_entries_that_differ(
    values: list[object], short: list[Value]
) -> None:
    written = [json.dumps(each) if isinstance(each, list) else each for each in values]
    assert short_values(written) == short  # type: ignore[arg-type]
