"""Nothing hangs on whether a process has run something before: a resumed run is often its process's first."""

import subprocess
import sys

import pytest

GRADIENT_IN_APPLY = (
    "protocol.name=meta-l2c protocol.mode=asynchronous protocol.patience=700 ms data.validation_share=0.25"
)


def differing(*names: str) -> str:
    command = [sys.executable, "-m", "tests.resume.first_runs", *names]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=900).stdout


def test_what_the_first_run_of_a_process_imports_leaves_no_mark_on_it() -> None:
    """torch imports much in the first gradient of a method's own, and in the first vmapped one of a model."""
    assert differing(GRADIENT_IN_APPLY, "mapl_churn", "l2c_synthetic") == ""


@pytest.mark.slow
def test_no_scenario_and_no_protocol_differs_in_its_first_run() -> None:
    lines = differing().splitlines()
    without = [line for line in lines if line.endswith("has no data")]
    assert lines == without
    if without:
        pytest.skip(f"{len(without)} scenarios need data: COTERIE_DATA")
