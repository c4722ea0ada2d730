import re

import pytest

from sim.results import text
from sim.results.report import blocks
from sim.results.report.blocks import MOST_OPEN_ROWS, Block, Cell, Numbers, Table
from sim.results.report.html import _templates


def rendered(block: Block) -> str:
    """A block alone."""
    return str(_templates().get_template("blocks.html").module.block(block))


def test_numbers_carry_the_values_by_which_they_are_sorted():
    rows = [
        ["a<b>", blocks.number_cell(90.0, text.duration), blocks.number_cell(None, text.share)],
        ["c", Cell("never", float("inf")), blocks.number_cell(0.5, text.share)],
    ]
    page = rendered(Table(["<name>", "time", "share"], rows, "things"))
    assert "<button>&lt;name&gt;</button>" in page
    assert "<td>a&lt;b&gt;</td><td class=number data-v=90>1\N{NO-BREAK SPACE}min\N{NO-BREAK SPACE}30" in page
    assert "<td class=number>\N{EN DASH}</td>" in page, "what is unknown has no value"
    assert "<td class=number data-v=Infinity>never</td><td class=number data-v=0.5>50.0%</td>" in page


@pytest.mark.parametrize("count", [1, MOST_OPEN_ROWS, MOST_OPEN_ROWS + 1, 300])
def test_long_tables_are_closed_and_can_be_searched(count):
    page = rendered(Table(["name"], [[f"row {number}"] for number in range(count)], "rows", "in order"))
    assert page.startswith("<details open>") == (count <= MOST_OPEN_ROWS)
    assert f"Table of the {count:,} rows, in order" in page
    assert ('<input type="search"' in page) == (count >= 10)
    assert len(re.findall("<td>row", page)) == count


def test_what_is_left_out_of_an_enormous_table_is_said(monkeypatch):
    monkeypatch.setattr(blocks, "MOST_ROWS", 20)
    page = rendered(Table(["name"], [[f"row {number}"] for number in range(1234)], "rows"))
    assert len(re.findall("<td>row", page)) == 20
    assert "The first 20 of 1,234 rows." in page


def test_plain_tables_are_escaped():
    assert "<td>&lt;i&gt;</td><td class=number>&amp;</td>" in rendered(Numbers([("", [("<i>", "&")])]))
