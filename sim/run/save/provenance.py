"""Provenance of results: code, libraries, command, machine and time."""

import os
import platform
import subprocess
import sys
from datetime import datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from sim.learning.engine.graph.samples import ClientData
from sim.plugins.source_files import OURS, PRODUCT, digest_of_coterie
from sim.scenario.resolved import digests_of_files
from sim.scenario.scenario import Scenario

_LIBRARIES = ("numpy", "scipy", "pyarrow", "polars")
_TORCH = str(torch.__version__)  # with the build, such as "+cpu", which the package's metadata may leave out


def provenance(device: str) -> dict[str, Any]:
    """Return the contents of provenance.json; docs/results.md explains each key."""
    commit, changed = _git_commit()
    return {
        "coterie": package_version("coterie"),
        "commit": commit,
        "changed_since_commit": changed,
        "python": platform.python_version(),
        "torch": _TORCH,
        **{library: package_version(library) for library in _LIBRARIES},
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "folder": os.getcwd(),
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
        "machine": {
            "platform": platform.platform(),
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "cores_allowed": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
            "device": device,
        },
    }


def conditions_of_run(
    scenario: Scenario, device: torch.device, data: ClientData | None = None
) -> dict[str, str]:
    """Return the code, files, data, device and libraries that determine a run's values, by name."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    users = [plugin.sources.digest for plugin in scenario.plugins if plugin.sources is not None]
    of_data = {} if data is None else {"the clients' data": data.digest()}
    return {
        "the user's code": " ".join(users) or "none",
        **{f"the content of {name}": each for name, each in digests_of_files(scenario).items()},
        **of_data,
        "the device": name,
        **conditions_of_process(),
    }


def conditions_of_process() -> dict[str, str]:
    """Return the code and libraries that determine this process's results, by name."""
    return {
        "the code of coterie": digest_of_coterie(*OURS),
        "torch": _TORCH,
        "numpy": str(package_version("numpy")),
        "python": platform.python_version(),
    }


@lru_cache  # reading the metadata takes milliseconds, in each run of a sweep
def package_version(package: str) -> str | None:
    """Return the version of an installed package, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None  # run from its sources, without having been installed


@lru_cache(maxsize=1)  # the running code is that of the time of loading
def _git_commit() -> tuple[str | None, bool | None]:
    """Return the commit of the code, and True if the code has changed since; None without a checkout."""
    # The code may lie in an unrelated repository, for instance in a virtual environment.
    if _git("ls-files", "--error-unmatch", __file__) is None:
        return None, None
    commit, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--", *OURS)
    return commit, None if changes is None else changes != ""


def _git(*arguments: str) -> str | None:
    """Run git in the folder of this code; return its output, or None without git or a checkout."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    command = ["git", "--no-optional-locks", "-C", str(PRODUCT), *arguments]
    try:
        finished = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return finished.stdout.strip()


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
