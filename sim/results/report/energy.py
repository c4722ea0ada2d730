"""Section of the report about energy, cost and CO2."""

from collections.abc import Mapping
from typing import Any

from sim.results import outcome, text
from sim.results.report.blocks import Block, Cell, Heading, Paragraph, Section, SideBySide, Table, number_cell
from sim.results.view import RunView

_PARTS = {
    "busy": "devices that compute",
    "idle": "devices that wait",
    "sent": "messages, at their senders",
    "received": "messages, at their receivers",
}


def energy(view: RunView) -> Section | None:
    """Show energy, cost and CO2 by part and by class of messages; None without constants."""
    found = view.get("energy")
    if found is None:
        return None
    lead = f"All clients and servers: {outcome.energy(view.summary)}. "
    lead += (
        "Energy is computed from the times of devices and the bytes of messages, with the constants of the "
        "scenario. A dash marks an amount that depends on a constant that is not set. "
    )
    if found["simulation_cpu_seconds"] is not None:
        took = text.duration(found["simulation_cpu_seconds"])
        lead += f"The simulation itself used {took} of CPU time; its energy is not measured. "
    heads = ["energy", f"cost{' in ' * bool(found['currency'])}{found['currency']}", "CO2"]
    parts = [[_PARTS[part], *_cells(each)] for part, each in found["parts"].items()]
    parts += [["servers, included above", *_cells(found["servers"])], ["all", *_cells(found)]]
    columns: list[list[Block]] = [[Heading("By part"), Table(["part", *heads], parts, "parts")]]
    if found["messages"]:
        kinds = [[text.message_type(kind), *_cells(each)] for kind, each in found["messages"].items()]
        columns.append([Heading("By message type"), Table(["type", *heads], kinds, "message types")])
    return Section("Energy, cost and CO2", [Paragraph(lead), SideBySide(columns)])


def _cells(amounts: Mapping[str, Any]) -> list[str | Cell]:
    return [
        number_cell(amounts["joules"], text.energy),
        number_cell(amounts["cost"], text.number),
        number_cell(amounts["co2_grams"], text.mass),
    ]
