"""Small scenarios with functions of the user's own."""

from pathlib import Path

from tests.simulation.worlds import QUADRATIC, write

GOSSIP = QUADRATIC.replace('name = "local"', 'name = "gossip"\nperiod = "1 s"')


def scenario_with(
    folder: Path, key: str, text: str, label: str = "mine", *, keys: str = "", base: str = GOSSIP
) -> Path:
    """A scenario in which `key` names function `label` of a file with this text, and gives it these keys."""
    write(folder, text, "own.py")
    table, _, last = key.rpartition(".")
    value = f'{{ kind = "own.py:{label}"{keys and ", "}{keys} }}'
    if key == "churn_process":
        return write(folder, f"{base}\n[[churn_process]]\n{value_lines(value)}")
    if key == "devices.slow_times":
        return write(folder, base.replace("[devices]\n", f"[devices]\nslow_times = [{value}]\n"))
    lines = [line for line in base.splitlines() if not line.startswith(f"{last} =")]
    place = lines.index(f"[{table}]") + 1
    return write(folder, "\n".join([*lines[:place], f"{last} = {value}", *lines[place:]]) + "\n")


def value_lines(value: str) -> str:
    """A table of one line as lines of its own."""
    return value.strip("{} ").replace(", ", "\n") + "\n"
