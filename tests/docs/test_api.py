"""docs/api.md: current, and complete."""

import re
from pathlib import Path

import pytest

import protocols
from docs.build.api import page
from protocols.framework.former_names import FORMER_NAMES
from sim.core.observer import ALWAYS, OF_EVERY_CLIENT
from sim.results.measures import OWN_METRICS

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_the_page_is_current() -> None:
    assert (ROOT / "docs" / "api.md").read_text(encoding="utf-8") == page(), "run `make reference`"


@pytest.mark.long
def test_every_public_name_of_a_learner_is_described() -> None:
    described = set(re.findall(r"^### `(\w+)", page(), re.MULTILINE))
    public = {name for name in dir(protocols.Client) if not name.startswith("_")} - FORMER_NAMES.keys()
    assert public <= described


@pytest.mark.long
def test_every_name_that_is_exported_is_described() -> None:
    text = page()
    for name in protocols.__all__:
        assert re.search(rf"`{name}\b", text), name


def test_what_examples_take_is_exported() -> None:
    docs = ROOT / "docs"
    for path in [*docs.rglob("*.md"), *(docs / "examples").rglob("*.py"), ROOT / "README.md"]:
        text = path.read_text(encoding="utf-8")
        text = re.sub(r"(?ms)^```diff\n.*?^```$", "", text)  # changes of coterie itself
        assert not re.search(r"from protocols\.(shared|\S+ import \w*Settings)", text), path


@pytest.mark.long
def test_the_names_that_no_method_may_observe_are_listed() -> None:
    [described] = re.findall(r"^### `observe\(.*\)`\n\n([^#]*)", page(), re.MULTILINE)
    assert {f"`{name}`" for name in (*ALWAYS, *OF_EVERY_CLIENT, *OWN_METRICS)} <= set(
        re.findall("`[^`]+`", described)
    )
