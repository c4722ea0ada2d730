"""A comparison of some clients alone says so, wherever its numbers are shown."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from sim.cli.studies import app
from sim.studies.cells import Plan
from sim.studies.comparison import Comparison
from sim.studies.pages import write_comparison
from sim.studies.study import load_study
from sim.studies.sweep import SweepResult

Small = tuple[Plan, SweepResult]
METRICS = ["distance", "distance.worst_decile", "messages.sent"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("clients", "named"), [([3], "3"), ([0, 1, 3], "0-1, 3"), ([2, 0], "0, 2"), (None, "")]
)
def test_tables_captions_pictures_and_files_say_which_clients(
    small: Small, tmp_path: Path, clients: list[int] | None, named: str
) -> None:
    comparison = Comparison(load_study([small[1].directory], clients), metrics=METRICS, target=1.2)
    page = write_comparison(comparison, tmp_path).read_text(encoding="utf-8")
    sentence, head = (
        f"Metrics of clients cover only clients {named}",
        f"distance to the local optimum, clients {named}",
    )
    of_text: Any = {"schema_overrides": {"clients": pl.String}}
    tex, svg = (tmp_path / "table.tex").read_text(), (tmp_path / "curves-distance.svg").read_text()
    of_all = (tmp_path / "curves-messages-sent.svg").exists()
    assert not of_all or "clients " not in (tmp_path / "curves-messages-sent.svg").read_text()
    whole = pl.read_csv(tmp_path / "table.csv", infer_schema_length=None, **of_text)
    if not named:
        assert "Metrics of clients" not in page + tex and ", clients" not in page + tex + svg
        assert whole["clients"].null_count() == len(whole)
        return
    assert sentence in page and sentence in tex
    assert f"<th>{head}</th>" in page and head in tex and f", clients {named}" in svg
    assert "<th>messages, sent</th>" in page and "Resources used per client, all clients" in page
    said = dict(whole.select("metric", "clients").rows())
    assert said == {"distance": named, "distance.worst_decile": named, "messages.sent": None}
    for file in ("target.csv", "runs.csv", "curves.csv"):
        rows = pl.read_csv(tmp_path / file, infer_schema_length=None, **of_text)
        assert set(rows["clients"]) == {named}


@pytest.mark.long
def test_the_terminal_says_so_too(small: Small, tmp_path: Path) -> None:
    command = ["compare", str(small[1].directory), "--clients", "1-2", "--out", str(tmp_path)]
    said = CliRunner().invoke(app, command)
    assert said.exit_code == 0, said.output
    assert "distance to the local optimum, clients 1-2" in said.stdout
    assert "Metrics of clients cover only clients 1-2" in said.stdout


@pytest.mark.parametrize("clients", ["3-0", "0-99999999999", "-1", "", "a", "1-"])
def test_the_command_refuses_clients_that_are_none(small: Small, clients: str) -> None:
    said = CliRunner().invoke(app, ["compare", str(small[1].directory), f"--clients={clients}"])
    assert said.exit_code == 2 and "client numbers" in said.stderr


@pytest.mark.long
def test_a_client_that_is_named_twice_counts_once(small: Small, tmp_path: Path) -> None:
    for name, clients in (("once", "0-2"), ("twice", "0-2,1,2")):
        command = ["compare", str(small[1].directory), "--clients", clients, "--out", str(tmp_path / name)]
        assert CliRunner().invoke(app, command).exit_code == 0
    assert (tmp_path / "once/table.csv").read_bytes() == (tmp_path / "twice/table.csv").read_bytes()
