"""Tables of docs/compare-methods.md: every order that the page states holds in its figures."""

import re

import polars as pl
import pytest

from benchmarks.methods import (
    CLUSTERS,
    CSV,
    FOUND,
    LOCAL,
    ORACLE,
    PAGE,
    PICTURE,
    TRANSFERRED,
    clusters_part,
    label,
    page_with,
    parts,
    picture,
    results,
)

FIGURES = pl.read_csv(CSV)


def test_the_page_and_its_picture_are_made_from_the_figures() -> None:
    page = PAGE.read_text(encoding="utf-8")
    clusters = "\n".join(clusters_part(pl.read_csv(CLUSTERS)))
    assert page_with(page, parts(FIGURES) | {"clusters": clusters}) == page
    assert picture(FIGURES) == PICTURE.read_text(encoding="utf-8")


def test_the_first_method_of_each_table_has_the_highest_mean() -> None:
    lines = parts(FIGURES)["first"].splitlines()[2:]
    assert len(lines) == FIGURES["table"].n_unique() == 10
    for line in lines:
        table, first, near, better = (cell.strip() for cell in line.strip("|").split(" | "))
        rows = [row for row in FIGURES.iter_rows(named=True) if row["table"] == table]
        method, _, accuracy = first.rpartition(": ")
        best = max((row for row in rows if row["seeds"] == 5), key=lambda row: row["mean"])
        assert (method, accuracy) == (best["method"], f"{100 * best['mean']:.1f}")
        for row in rows:
            if row["method"] in near.split(", ") and "," not in row["method"]:
                assert row["high"] >= best["mean"] >= row["mean"]
        count = sum((row["difference_low"] or 0) > 0 for row in rows)
        assert better == f"{count} of {FIGURES['method'].n_unique() - 1} methods"


def test_methods_that_are_never_below_local_training_are_above_it_in_most_tables() -> None:
    named = parts(FIGURES)["safe"].splitlines()[2:]
    for method, rows in FIGURES.group_by("method"):
        above = sum((each or 0) > 0 for each in rows["difference_low"])
        below = sum((each or 0) < 0 for each in rows["difference_high"])
        listed = [
            line for line in named if f", {method[0]}, " in f", {line.strip('| ').rpartition(' | ')[0]}, "
        ]
        assert len(listed) == (method[0] != LOCAL and not below and above > 5)
        assert all(line.endswith(f" {above} |") for line in listed)


def test_methods_below_local_training_have_a_negative_interval() -> None:
    for line in parts(FIGURES)["below"].splitlines()[2:]:
        table, named = (cell.strip() for cell in line.strip("|").split(" | "))
        rows = FIGURES.filter(pl.col("table") == table)
        methods = set(rows["method"])
        below = {row["method"] for row in rows.iter_rows(named=True) if (row["difference_high"] or 0) < 0}
        assert {method for method in methods if f", {method}, " in f", {named}, "} == below


def test_clusters_are_found_where_the_accuracy_is_near_the_oracle() -> None:
    runs = pl.DataFrame(
        {
            "method": [ORACLE, ORACLE, LOCAL, LOCAL, "ifca", "ifca"],
            "seed": [1, 2, 1, 2, 1, 2],
            "accuracy": [0.9, 0.8, 0.7, 0.7, 0.9 - FOUND + 0.001, 0.8 - FOUND - 0.001],
        }
    )
    lines = list(clusters_part(runs))[2:]
    assert [line.split(" | ")[-1].rstrip(" |") for line in lines] == ["-", "-", "1 of 2"]
    assert lines[2].startswith("| ifca | 87.1, 76.9 |")


def test_the_figures_hold_every_method_once_in_each_table() -> None:
    tables = {table: sorted(rows["method"]) for (table,), rows in FIGURES.group_by("table")}
    every = max(tables.values(), key=len)
    assert len(every) == len(set(every)) == 48 and LOCAL in every
    for table, names in tables.items():
        assert len(names) == len(set(names)) and set(names) <= set(every)
        assert names == every or table.startswith(TRANSFERRED)


def test_the_runs_that_diverge_are_counted() -> None:
    other = FIGURES.filter(pl.col("table").str.starts_with(TRANSFERRED))
    finite = int(other["seeds"].sum())
    text = parts(FIGURES)["transfer"]
    assert text.startswith(f"{960 - finite} of 960 runs diverge")
    listed = sum(map(int, re.findall(r" \((\d+)\)", text)))
    assert listed == 960 - finite


def test_every_figure_is_finite() -> None:
    assert FIGURES.filter(pl.col("mean").is_null()).is_empty()


@pytest.mark.parametrize(
    "name, shown",
    [
        ("local", "local"),
        ("cobo, asynchronous", "cobo (asynchronous)"),
        ("scool (sbm), synchronous", "scool (sbm, synchronous)"),
    ],
)
def test_names_have_no_comma_outside_of_parentheses(name: str, shown: str) -> None:
    assert label(name) == shown


def test_a_page_without_the_marks_is_refused() -> None:
    assert (
        page_with("a\n<!-- x -->\nold\n<!-- end -->\n", {"x": "new"}) == "a\n<!-- x -->\nnew\n<!-- end -->\n"
    )
    with pytest.raises(SystemExit, match="has no part 'y'"):
        page_with("<!-- x -->\n<!-- end -->\n", {"y": "new"})


def test_the_table_of_compare_is_read_by_its_column_names(tmp_path) -> None:
    columns = "method,table,metric,seeds,mean,low,high,hurt,difference_low,difference_high\n"
    rows = [
        "local,t,accuracy,5,.5,.4,.6,,,",
        "local,t,accuracy.worst_decile,5,.3,,,,,",
        "local,t,messages.bytes,5,0,,,,,",
        "fedavg,t,accuracy,4,.7,.6,.8,.2,.1,.3",
        "fedavg,t,accuracy.worst_decile,4,.6,,,,,",
        "fedavg,t,messages.bytes,4,5e6,,,,,",
    ]
    path = tmp_path / "table.csv"
    path.write_text(columns + "\n".join(rows), encoding="utf-8")
    found = results([path]).sort("method").to_dicts()
    assert found[0] == {
        "table": "t",
        "method": "fedavg",
        "seeds": 4,
        "mean": 0.7,
        "low": 0.6,
        "high": 0.8,
        "hurt": 0.2,
        "difference_low": 0.1,
        "difference_high": 0.3,
        "worst": 0.6,
        "megabytes": 5.0,
    }
    assert found[1]["megabytes"] == 0.0 and found[1]["hurt"] is None
