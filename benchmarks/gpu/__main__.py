"""Entry point of `make gpu`: measure on a CUDA device and write docs/gpu.md."""

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu import agreement, cross_device, launches, speed
from benchmarks.gpu.parts import Effort, Part, cell, run
from benchmarks.measuring import machine, table

DOCS = Path(__file__).parent.parent.parent / "docs"
FOUND = Path(__file__).with_name("found.md")  # measured by hand, on the card that the file names
PARTS = {
    "agreement": Part(agreement.TITLE, agreement.TEXT, agreement.rows, 150),
    "engine": Part(speed.TITLE, speed.TEXT, speed.rows, 120),
    "launches": Part(launches.TITLE, launches.TEXT, launches.rows, 60),
    "cross-device": Part(cross_device.TITLE, cross_device.TEXT, cross_device.rows, 180),
    "two-runs": Part(speed.TWO_TITLE, speed.TWO_TEXT, speed.rows_of_two, 90),
}

HEAD = """\
# Run on a GPU

This page shows how to run coterie on a CUDA device, and how accurate and fast these runs are.
`coterie run FILE --device cuda` computes on a CUDA device, and fails if there is none. `--device auto`, the
default, uses a CUDA device if there is one, and `--device cpu` never does. All commands that run or predict a
scenario take the option; `coterie.run(..., device="cuda")` does the same in Python. The events of a run equal
those on the CPU unless a method bases decisions on computed values, and the values agree up to rounding.

- *Precision.* `engine.precision = "float32"`, the default, also means float32 on a GPU: convolutions do not
  use TF32, which is torch's default. `"tf32"` and `"bfloat16"` are faster and change the values.
- *Backend.* `engine.way = "fastest"` measures before the run which backend is fastest on the device. It
  pays off for large models with convolutions: `"auto"` ignores batch size and precision, which matter there.
- *Repeatability.* Two runs of a model with convolutions may differ in their last bits on a GPU, because cuDNN
  does not always add in the same order.
- *Memory.* All vectors in use and the data set are in the memory of the device. A call of training or
evaluation
  computes as many clients as fit into a sixteenth of the device's memory, intermediate results included. A
  call that nevertheless runs out of memory is split in two and repeated. If a single client does not fit, the
  run ends with a message that says what to change.
- *Several cards.* `engine.devices = ["cuda:0", "cuda:1"]` computes parts of a batch at the same time on GPUs
  of one kind, with the same results as on one. All vectors are on the first card. The inputs of a part are
  copied to another card when the first has finished its earlier work, and the results are copied back. So
  several cards suit large models in batches that do not fit into one call or run in a loop. The gain has not
  been measured, because no machine with two cards was available.
- *Several runs on one card.* `coterie sweep ... --on ray --gpus 0.25` runs four at once
  ([studies](how-to/studies.md)); each needs its own memory.

`make gpu` runs the tests of engine and methods on a CUDA device, measures everything below and writes this
page. [The benchmarks](benchmarks.md) also count the launches of a flush without a GPU.

{machine}"""


def main() -> None:
    """Run each part in a new process, so that an error or a hanging part does not affect other parts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--only", choices=list(PARTS), nargs="+", help="run only these parts")
    parser.add_argument("--device", default="cuda", help="cpu: a test without a GPU")
    parser.add_argument("--share", type=float, default=1.0, help="share of the full amount of work")
    parser.add_argument("--out", type=Path, default=DOCS, help="folder for gpu.md and gpu.json")
    parser.add_argument("--inside", choices=list(PARTS), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.device.startswith("cuda") and not torch.cuda.is_available():
        print("torch finds no CUDA device: nothing is measured.")
        return
    effort = Effort(torch.device(chosen.device), chosen.share)
    chosen.out.mkdir(parents=True, exist_ok=True)
    if chosen.inside:
        run(PARTS[chosen.inside], effort, chosen.out / f"gpu-{chosen.inside}.json")
        return
    file = chosen.out / "gpu.json"
    about, found = machine(effort.device), dict[str, Any]()
    for name in chosen.only or PARTS:
        print(f"--- {name}", flush=True)
        found[name] = _measured(name, effort, chosen.out)
        file.write_text(json.dumps({"machine": about, "parts": found}, indent=1), encoding="utf-8")
        (chosen.out / "gpu.md").write_text(page(about, found), encoding="utf-8")


def page(about: str, found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the text of docs/gpu.md.

    about: description of the machine. found: results of the parts, by name.
    """
    sections = [_section(PARTS[name], of_part) for name, of_part in found.items()]
    return "\n\n".join([HEAD.format(machine=about), *sections, FOUND.read_text(encoding="utf-8")])


def _measured(name: str, effort: Effort, out: Path) -> dict[str, Any]:
    """Run a part and return its results, as far as it got within its time limit."""
    file, limit_s = out / f"gpu-{name}.json", PARTS[name].limit_s
    file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.gpu", "--inside", name, "--device", str(effort.device)]
    command += ["--share", str(effort.share), "--out", str(out)]
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            code = process.wait(limit_s)
            ended = None if code == 0 else f"the process ended with {code}"
        except subprocess.TimeoutExpired:
            ended = f"it took more than {limit_s:.0f} s"
            os.killpg(process.pid, signal.SIGKILL)  # including its child processes
    found: dict[str, Any] = {"rows": [], "failed": None, "seconds": 0.0}
    if file.exists():
        found = json.loads(file.read_text(encoding="utf-8"))
        file.unlink()
    return found | {"failed": found["failed"] or ended}


def _section(part: Part, found: Mapping[str, Any]) -> str:
    """Return a part of the page."""
    pieces = [f"## {part.title}", part.text]
    head = list(dict.fromkeys(name for row in found["rows"] for name in row))
    if head:
        pieces.append(table(head, [[cell(row.get(name)) for name in head] for row in found["rows"]]))
    if found["failed"]:
        pieces.append(f"This part did not finish:\n\n```\n{found['failed'].strip()}\n```")
    return "\n\n".join(pieces)


if __name__ == "__main__":
    main()
