"""Look for input that the command `coterie` does not cope with: `make fuzz`, or `python -m tests.fuzz`.

Whatever the input, a command must end with 0, with 2 and a message, or with 1 and a message: never with a
traceback, after no more than 30 seconds, and with no more than 2 GB of memory. What a check has called well
must not be refused by a run.
"""

import argparse
import multiprocessing
import os
import shutil
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from random import Random, SystemRandom

import tomli_w

from tests.fuzz import data, isolation, worlds
from tests.fuzz.case import Case, Verdict, attempt
from tests.fuzz.kinds import KINDS
from tests.fuzz.results import RESULTS, SWEEP, study

_WORLDS_WITH_RESULTS = ("quickstart", "gossip", "world_spot")


def main() -> int:
    """Run cases until the time is over, or there have been enough; 1 if any fault was found."""
    options = _options()
    folder: Path = options.out.absolute()
    print(f"seed {options.seed}", flush=True)
    _prepare(folder)
    if options.case is not None:
        verdict = attempt(options.case, KINDS[options.case.kind], folder / "data", folder / "case")
        print(f"{described(verdict)}\nits files are in {folder / 'case'}")
        return verdict.fault is not None
    endings: Counter[str] = Counter()
    faults: dict[str, list[Verdict]] = defaultdict(list)
    try:
        for verdict in _verdicts(options, folder):
            endings[verdict.ending] += 1
            if verdict.fault is not None:
                faults[verdict.fault.name].append(verdict)
                if len(faults[verdict.fault.name]) == 1:
                    print(f"\n{described(verdict)}\n", flush=True)
            if endings.total() % 100 == 0:
                print(f"{endings.total():,} cases, {len(faults)} faults", flush=True)
    except KeyboardInterrupt:
        print("interrupted")
    ended = ", ".join(f"{count:,} {name}" for name, count in endings.most_common())
    print(f"\n{endings.total():,} cases; ended with: {ended}")
    for name, verdicts in sorted(faults.items(), key=lambda item: -len(item[1])):
        print(f"{len(verdicts):5,} x {name}   --case {verdicts[0].case}")
    print(f"{len(faults)} different faults" if faults else "no faults")
    return bool(faults)


def described(verdict: Verdict) -> str:
    """A case and what came of it, with how to run it again."""
    lines = [f"case {verdict.case}", *(f"  changed: {words}" for words in verdict.words)]
    for arguments, code in zip(verdict.commands, verdict.codes, strict=True):
        shown = [word if len(word) <= 60 else f"{word[:57]}..." for word in map(repr, arguments)]
        lines.append(f"  coterie {' '.join(shown)}: exit {code}")
    if verdict.fault is None:
        return "\n".join([*lines, "  no fault", verdict.errors])
    told = verdict.fault.detail.splitlines()
    innermost_first = "most recent call first" in verdict.fault.detail
    detail = "\n".join(f"    {line}" for line in (told[:12] if innermost_first else told[-12:]))
    return "\n".join([*lines, f"  fault: {verdict.fault.name}", detail])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="stop after so long (default 10)")
    parser.add_argument("--cases", type=int, help="stop after so many cases")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6), help="of all cases")
    parser.add_argument("--kinds", nargs="+", choices=sorted(KINDS), default=sorted(KINDS))
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="cases at a time")
    parser.add_argument("--case", type=Case.parse, help="only this one, as printed")
    parser.add_argument("--out", type=Path, default=Path("runs/fuzz"), help="for data, and files of --case")
    return parser.parse_args()


def _prepare(folder: Path) -> None:
    """Valid data and results, and everything imported that any case needs."""
    shutil.rmtree(folder / "data", ignore_errors=True)
    data.write_all(folder / "data")
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "scenario.toml")
        file.write_text(tomli_w.dumps(worlds.short("quickstart")), encoding="utf-8")
        isolation.warm_up(Path(place), ["run", "scenario.toml", "--quiet"])
    for name in _WORLDS_WITH_RESULTS:
        own = folder / "data" / RESULTS / name
        own.mkdir(parents=True)
        (own / "scenario.toml").write_text(tomli_w.dumps(worlds.short(name)), encoding="utf-8")
        _done(own, ["run", "scenario.toml", "--quiet", "--out", ".", "--checkpoint-at", "1 s"], folder)
    study(folder / "data" / SWEEP)
    _done(folder / "data" / SWEEP, ["sweep", "study.toml", "--quiet", "--jobs", "1"], folder)


def _done(place: Path, command: list[str], folder: Path) -> None:
    """Run a command in a place with valid data; it must succeed."""
    (place / "data").symlink_to(folder / "data")
    outcome = isolation.command(command, place)
    (place / "data").unlink()
    if outcome.code != 0:
        raise SystemExit(f"{place.name}, unspoiled, ends with {outcome.code}:\n{outcome.errors}")


def _verdicts(options: argparse.Namespace, folder: Path) -> Iterator[Verdict]:
    """What comes of one case after the other; some are tried side by side."""
    end_s = time.monotonic() + 60 * options.minutes
    rng, begun = Random(options.seed), 0
    waiting: set[Future[Verdict]] = set()
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("fork")) as processes:
        try:
            while True:
                while (
                    len(waiting) < 2 * options.jobs
                    and time.monotonic() < end_s
                    and (options.cases is None or begun < options.cases)
                ):
                    case = Case(rng.choice(options.kinds), rng.randrange(10**9))
                    waiting.add(processes.submit(_tried, case, folder))
                    begun += 1
                if not waiting:
                    return
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        finally:
            processes.shutdown(cancel_futures=True)


def _tried(case: Case, folder: Path) -> Verdict:
    """What comes of a case; with a fault it is tried again: a busy machine can make a command slow once."""
    verdict = attempt(case, KINDS[case.kind], folder / "data")
    if verdict.fault is None or attempt(case, KINDS[case.kind], folder / "data").fault is not None:
        return verdict
    return replace(verdict, fault=replace(verdict.fault, name=f"{verdict.fault.name} (only once)"))


if __name__ == "__main__":
    raise SystemExit(main())
