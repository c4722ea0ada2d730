"""Draw two scenarios of digits from a date, for a comparison of methods whose settings were frozen earlier.

`python -m benchmarks.draw 2026-11-27` writes drawn_1.toml and drawn_2.toml to scenarios/studies/fair. They
compare the methods of tuned.toml with the settings there. With `--tuned methods_tuned.toml`, the files are
methods_drawn_1.toml and methods_drawn_2.toml, with the methods of that file. The date seeds the generator, so
that no author chooses a scenario in which a method does well. The same date gives the same files.
"""

import argparse
import datetime
import tomllib
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import tomli_w

FAIR = Path(__file__).parents[1] / "scenarios" / "studies" / "fair"
PARTITIONS = (
    {"kind": "iid"},
    {"kind": "dirichlet", "alpha": 0.1},
    {"kind": "dirichlet", "alpha": 1.0},
    {"kind": "classes-per-client", "classes": 2},
    {"kind": "classes-per-client", "classes": 5},
    {"kind": "permuted-clusters", "clusters": 2, "shift": 3},
    {"kind": "disjoint-clusters", "clusters": 2},
)
NUMBERS = (1, 2)


TUNED = "tuned.toml"
ALL_METRICS = ["accuracy", "accuracy.worst_decile", "messages.bytes"]
"""Metrics of the comparison of all methods (docs/compare-methods.md)."""


def drawn(date: datetime.date, number: int, tuned: str = TUNED) -> dict[str, Any]:
    """Return scenario `number` of a date: untuned.toml with another partition, world and seeds.

    tuned: name of the file with the methods and their settings.
    """
    rng = Random(f"{date.isoformat()} {number}")
    partition = rng.choice(PARTITIONS) | {"samples_per_client": rng.choice((20, 30, 60))}
    scenario = _read("untuned.toml")
    scenario["clients"]["count"] = rng.choice((8, 10))
    scenario["data"]["partition"] = partition
    scenario["network"] = {
        "latency": {"kind": "lognormal", "median": rng.choice(("5 ms", "50 ms", "200 ms")), "sigma": 0.3},
        "uplink": rng.choice(("1 Mbit/s", "10 Mbit/s")),
        "downlink": "10 Mbit/s",
    }
    scenario["devices"]["step_time"]["sigma"] = rng.choice((0.0, 0.3, 0.8))
    first = rng.randrange(1_000, 9_000, 10)
    scenario["sweep"] = {
        "seeds": [*range(first, first + 5)],
        "case": [case for case in _read(tuned)["sweep"]["case"] if case["axis"] == "method"],
        "compare": scenario["sweep"]["compare"] | ({} if tuned == TUNED else {"metrics": ALL_METRICS}),
    }
    return scenario


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((FAIR / name).read_text(encoding="utf-8"))


def text_of(date: datetime.date, number: int, tuned: str = TUNED) -> str:
    """Return a file with the question, the date and the scenario."""
    which, page = ("five", "how-to/fair-comparisons") if tuned == TUNED else ("all", "compare-methods")
    command = f"{date.isoformat()}{'' if tuned == TUNED else f' --tuned {tuned}'}"
    question = (
        f"# How do {which} methods with frozen settings rank in a scenario that was drawn afterwards?",
        "#",
        f"# Scenario {number} of `python -m benchmarks.draw {command}`: the partition, the number",
        f"# of clients, the network, speeds and seeds are drawn; the settings are those of {tuned}.",
        f"# docs/{page}.md shows the figures.",
    )
    return "\n".join([*question, tomli_w.dumps(drawn(date, number, tuned))])


def name_of(number: int, tuned: str = TUNED) -> str:
    """Return the name of a drawn file: drawn_1.toml, or methods_drawn_1.toml for methods_tuned.toml."""
    return tuned.replace(TUNED, f"drawn_{number}.toml")


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the scenarios of a date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("date", type=datetime.date.fromisoformat, help="date of the draw: 2026-11-27")
    parser.add_argument("--tuned", choices=(TUNED, "methods_tuned.toml"), default=TUNED, help="tuned methods")
    stated = parser.parse_args(arguments)
    for number in NUMBERS:
        path = FAIR / name_of(number, stated.tuned)
        path.write_text(text_of(stated.date, number, stated.tuned), encoding="utf-8")
        print(path.name)


if __name__ == "__main__":
    main()
