"""The figures of docs/stories.md are those of the runs that it names."""

import re
from pathlib import Path

import polars as pl
import pytest

import coterie

PAGE = (Path(__file__).parents[2] / "docs/stories.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """Cells of the table below a heading, without its head."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    table = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


def seconds(text: str) -> float:
    minutes, rest = re.fullmatch(r"(\d+) min(?: (\d+) s)?", text).groups()  # type: ignore[union-attr]
    return 60.0 * int(minutes) + int(rest or 0)


def percent(share: float, digits: int) -> str:
    return f"{100 * share:.{digits}f}%"


def shares(frame: pl.DataFrame) -> dict[tuple[float, int, int], float]:
    """Share of each source in all training of a model, by time, client and source."""
    training = frame.filter(pl.col("kind") == "training")
    sums = training.group_by("time", "client", "source_client").agg(pl.col("weight").sum())
    whole = sums.with_columns(pl.col("weight") / pl.col("weight").sum().over("time", "client"))
    return {(time, client, source): weight for time, client, source, weight in whole.rows()}


@pytest.mark.slow
def test_the_wrong_edge_of_cobo(tmp_path: Path) -> None:
    run = coterie.run("quickstart", out=tmp_path, quiet=True)
    weights = {
        time: weight
        for time, source, target, weight in run.graph.select("time", "source", "target", "weight").rows()
        if (source, target) == (3, 11)
    }
    latest = run.lineage(client=3, windows=24).filter(
        pl.col("source_client") == 11, (pl.col("to") - pl.col("time")).abs() < 1e-9
    )
    found = dict(latest.select("time", "share").rows())
    for time, weight, share in rows("CoBo takes a wrong edge back"):
        assert share == percent(found[seconds(time)], 1)
        at = weights.get(seconds(time), 0.0)
        assert weight == (f"{at:.2f}" if at else "0")
    accuracy = run.metrics.filter(pl.col("name") == "accuracy", pl.col("actor") == "client-3")
    values = dict(accuracy.select("time", "value").rows())
    assert [f"{values[time]:.1%}" for time in (180.0, 190.0, 210.0)] == ["88.3%", "87.5%", "88.9%"]


@pytest.mark.slow
def test_the_straggler_of_mapl(tmp_path: Path) -> None:
    run = coterie.run("mapl_churn", out=tmp_path, quiet=True)
    end = run.graph.filter(pl.col("time") == 80.0)
    given = end.filter(pl.col("target") == 3)["weight"].round(2).to_list()
    assert set(given) == {0.1, 0.08}
    kept = set(end.filter(pl.col("source") == 3)["target"].to_list())
    assert kept == {0, 2, 4, 6, 7, 9, 10}, "1 and 8 crashed; 5 and 11 came later"
    passes = run.metrics.filter(pl.col("name") == "iterations", pl.col("time") == 80.0)
    done = dict(passes.select("actor", "value").rows())
    assert (done["client-3"], done["client-0"]) == (10, 237)
    found = shares(run.lineage(at=80.0))
    assert percent(found[80.0, 3, 3], 1) == "91.5%"
    others = [share for (_, client, source), share in found.items() if source == 3 != client]
    assert (percent(min(others), 2), percent(max(others), 2)) == ("0.03%", "0.05%")
    accuracy = run.metrics.filter(pl.col("name") == "accuracy", pl.col("actor") == "client-3")
    assert f"{accuracy['value'][-1]:.1%}" == "98.7%"


@pytest.mark.slow
def test_the_coalition_whose_first_member_leaves(tmp_path: Path) -> None:
    run = coterie.run("l2c_churn", out=tmp_path, quiet=True)
    left = run.events.filter(pl.col("event") == "leave")
    assert left.select("time", "actor").rows() == [(660.0, "client-3")]
    found = shares(run.lineage(client=4))
    for time, *stated in rows("A coalition survives its first member"):
        at = [found.get((seconds(time), 4, source), 0.0) for source in (3, 4, 5)]
        assert stated == [percent(share, 1) if share else "0%" for share in at]
    losses = run.metrics.filter(pl.col("name") == "loss", pl.col("time") >= 660)
    for client in ("client-4", "client-5"):
        values = losses.filter(pl.col("actor") == client)["value"]
        assert values[-1] < 1.2 * values[0], "the same level"
