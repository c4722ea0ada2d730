"""Kinds of input that have files beside the scenario: images, measured traces, data of the user's own."""

import copy
import gzip
import io
import json
import lzma
import pickle
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import tomli_w

from tests.fuzz import data, grammar, spoil
from tests.fuzz.case import Commands

Files = dict[str, Any]
"""By path: an array, a table of arrays, a text, a pickled object, or bytes that are none of these."""
_WORLD: dict[str, Any] = {
    "run": {"iterations": 2, "evaluate_every": "1 iterations"},
    "clients": {"count": 4},
    "model": {"name": "logistic-regression"},
    "training": {"learning_rate": 0.1, "batch_size": 4},
    "protocol": {"name": "gossip"},
    "network": {"latency": "20 ms", "uplink": "unlimited", "downlink": "unlimited"},
    "devices": {"step_time": "100 ms"},
}


def encoded(name: str, content: Any) -> bytes:
    """What stands in the file of a name, whatever it holds."""
    suffix = Path(name).suffix
    if suffix in (".gz", ".xz"):
        inner = encoded(name.removesuffix(suffix), content)
        return gzip.compress(inner, 1, mtime=0) if suffix == ".gz" else lzma.compress(inner, preset=0)
    if isinstance(content, bytes):
        return content
    if isinstance(content, str):
        text = content.encode("utf-8", "surrogatepass")
        return _parquet(text) if suffix == ".parquet" else text
    if isinstance(content, np.ndarray):
        return data.npy(content) if suffix == ".npy" else data.idx(content)
    if isinstance(content, dict) and suffix == ".npz":
        return data.npz(content)
    if isinstance(content, dict) and suffix == ".mat":
        return data.mat(content)
    if isinstance(content, dict) and suffix == ".json":
        return json.dumps(content, default=str).encode()
    if isinstance(content, dict) and suffix == ".arrow":
        return _arrow(content)
    return pickle.dumps(content, protocol=2)


def _parquet(csv: bytes) -> bytes:
    try:  # the columns' types are what is in them
        file = io.BytesIO()
        pl.read_csv(csv, infer_schema_length=None).write_parquet(file)
        return file.getvalue()
    except pl.exceptions.PolarsError:
        return csv


def _arrow(columns: dict[str, Any]) -> bytes:
    try:
        return data.arrow(
            pa.table({name: pa.array(np.asarray(each).tolist()) for name, each in columns.items()})
        )
    except (
        pa.ArrowException,
        TypeError,
        ValueError,
    ):  # columns of different lengths, or of what Arrow has not
        return repr(columns).encode()


def _damaged(name: str, content: Any, rng: Random) -> tuple[Any, str]:
    """The content of a file, spoiled as what it is, or its bytes."""
    if isinstance(content, dict) and name.endswith(".json") and rng.random() < 0.7:
        changed = copy.deepcopy(content)
        return changed, spoil.damaged_table(changed, rng)
    if isinstance(content, bytes) or name.endswith(".json") or rng.random() < 0.15:
        return spoil.damaged_bytes(encoded(name.removesuffix(".gz").removesuffix(".xz"), content), rng)
    if isinstance(content, np.ndarray):
        return spoil.damaged_array(content, rng)
    if isinstance(content, str):
        return spoil.damaged_csv(content, rng, " " if name.endswith(".txt") else ",")
    key = rng.choice(list(content))
    if len(content) > 1 and rng.random() < 0.2:
        return {other: each for other, each in content.items() if other != key}, f"without {key!r}"
    array, how = spoil.damaged_array(np.asarray(content[key]), rng)
    return content | {key: array.tolist() if isinstance(content[key], list) else array}, f"{key!r}: {how}"


def _written(
    scenario: dict[str, Any], files: Files, rng: Random, changes: int, *, of_scenario: float = 0.0
) -> tuple[list[str], Commands]:
    """Spoil so many files, write them, and replace some of those by what is none; or spoil the scenario."""
    words, replaced = [], []
    for _ in range(changes):
        name = rng.choice(list(files))
        if rng.random() < of_scenario:
            words.append(rng.choice((grammar.change, spoil.damaged_table))(scenario, rng))
        elif rng.random() < 0.1:
            replaced.append(Path(name))
        else:
            files[name], how = _damaged(name, files[name], rng)
            words.append(f"{name}: {how}")
    for name, content in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(encoded(name, content))
    words += [spoil.replace_file(name, rng) for name in replaced]
    Path("scenario.toml").write_text(tomli_w.dumps(scenario), encoding="utf-8", errors="replace")
    return words, [["check", "scenario.toml"], ["run", "scenario.toml", "--quiet"]]


def images(rng: Random, changes: int) -> tuple[list[str], Commands]:
    """MNIST, Fashion-MNIST, CIFAR, SVHN or CINIC-10 on disk, with arrays, labels or files spoiled."""
    name, place, suffixes, make = rng.choice(
        (
            ("mnist", "MNIST/raw", ("", ".gz", ".xz"), data.grey_images),
            ("fashion-mnist", "fashion-mnist/FashionMNIST/raw", (".gz", ".xz"), data.grey_images),
            ("cifar-10", "cifar-10-batches-py", ("", ".xz"), data.cifar_10),
            ("cifar-100", "cifar-100-subset", ("", ".xz"), data.cifar_arrays),
            ("svhn", "svhn", ("", ".gz"), data.svhn),
            ("cinic-10", "cinic-10", ("",), data.cinic_10),
        )
    )
    scenario = json.loads(json.dumps(_WORLD))
    scenario["data"] = {"name": name, "partition": "iid"}
    scenario["model"]["name"] = rng.choice(("logistic-regression", "mlp", "cnn"))
    suffix = rng.choice(suffixes)
    arrays = make(np.random.default_rng(rng.randrange(2**32)))
    Path("data").unlink()
    return _written(
        scenario, {f"data/{place}/{file}{suffix}": each for file, each in arrays.items()}, rng, changes
    )


_PHONES = {"kind": "trace", "source": "phones"}
_SPEEDS = {"kind": "trace", "source": "ai-benchmark", "median": "100 ms"}
_SPOT = {
    "aws_2020-03-15": "spot_sessions_2020",
    "gcp_2020-03-01": "spot_sessions_2020",
    "g4dn_us-east-1c_2020-11-20": "spot_cluster_size_g4dn_us-east-1c_2020-11-20",
    "p2_2020-11-20": "spot_cluster_size_p2_2020-11-20",
}
_LATENCIES: tuple[tuple[dict[str, Any], str], ...] = (
    ({"kind": "trace", "source": "planetlab"}, "data/net-latency/planetlab_rtt_ms.npz"),
    ({"kind": "trace", "source": "planetlab", "slice": "1 s"}, "data/net-latency/planetlab_rtt_ms.npz"),
    (
        {"kind": "trace", "source": "seattle", "slice": "500 ms", "jitter": 0.1},
        "data/net-latency/seattle_rtt_s.npz",
    ),
    ({"kind": "matrix", "file": "matrix.npy", "unit": "ms"}, "matrix.npy"),
    ({"kind": "matrix", "file": "matrix.csv", "unit": "ms"}, "matrix.csv"),
)
_POWER = {"devices.power": {"busy": "5 W", "idle": "1 W"}, "devices.region": "north"}
# What a scenario says to use a trace, and the trace's file.
_USES: tuple[tuple[dict[str, Any], str], ...] = (
    *(({"network.latency": latency}, file) for latency, file in _LATENCIES),
    ({"network.uplink": _PHONES, "network.downlink": _PHONES}, "data/device-traces/phone_bandwidth.csv"),
    ({"devices.step_time": _SPEEDS}, "data/device-traces/ai_benchmark_2020.csv"),
    *(
        (
            {"churn_process": [{"kind": "trace", "source": of, "speedup": 4000, "clients": [2, 3, 4, 5]}]},
            f"data/spot-churn/{file}.csv",
        )
        for of, file in _SPOT.items()
    ),
    *(({"devices.measured": {"file": file}}, file) for file in ("slow.csv", "slow.parquet")),
    *(({"churn_process": [{"kind": "table", "file": file}]}, file) for file in ("up.csv", "up.parquet")),
    ({"clients.topology": {"kind": "edge-list", "file": "edges.txt"}}, "edges.txt"),
    *(
        ({f"network.{key}": {"kind": "table", "file": file} for key in keys}, file)
        for keys in (("uplink", "downlink"), ("latency", "loss"), ("uplink", "latency", "loss"))
        for file in ("link.csv", "link.parquet")
    ),
    ({"network.downlink": {"kind": "mahimahi", "file": "packets.txt"}}, "packets.txt"),
    *(({"energy": {"carbon": {"file": file}}, **_POWER}, file) for file in ("grid.csv", "grid.parquet")),
)


def traces(rng: Random, changes: int) -> tuple[list[str], Commands]:
    """A scenario that needs a measured trace or a file of its own, with that file spoiled."""
    settings, file = rng.choice(_USES)
    scenario = json.loads(json.dumps(_WORLD)) | {
        "run": {"duration": "2 s", "evaluate_every": "1 s"},
        "data": {"name": "quadratic", "clusters": 2, "dimension": 4, "samples": 20},
        "model": {"name": "point"},
        "training": {"learning_rate": 0.1, "batch_size": 1},
        "clients": {"count": 6},
    }
    for key, value in settings.items():
        spoil.put(scenario, tuple(key.split(".")), value)
    numbers = np.random.default_rng(rng.randrange(2**32))
    milliseconds = numbers.lognormal(3, 0.5, (6, 6))
    own = {
        "matrix.npy": milliseconds,
        "matrix.csv": "\n".join(",".join(f"{each:.3f}" for each in row) for row in milliseconds),
        "slow.csv": (slow := "time_s,factor\n0,1\n0.5,4\n1.5,1\n3,1\n"),
        "slow.parquet": slow,
        "up.csv": (up := "client,start_s,end_s\n0,0,9\n1,0.5,1\n2,0,0.3\n2,0.6,1.5\n5,0,1\n"),
        "up.parquet": up,
        "link.csv": (
            link := "time_s,mbit_per_s,latency_ms,loss\n0,8,20,0\n0.5,0,30,1\n0.9,4,25,0.2\n3,0,0,0\n"
        ),
        "link.parquet": link,
        "packets.txt": "".join(f"{each}\n" for each in sorted(numbers.integers(1, 900, 60))),
        "grid.csv": (grid := "region,hour,per_kwh\nnorth,0,30\nnorth,1,45.5\nsouth,0,400\n"),
        "grid.parquet": grid,
        "edges.txt": "# a ring\n" + "".join(f"{client} {(client + 1) % 6}\n" for client in range(6)),
    }
    Path("data").unlink()
    Path("data").mkdir()
    return _written(scenario, {file: own[file] if file in own else data.trace(file, numbers)}, rng, changes)


def own_data(rng: Random, changes: int) -> tuple[list[str], Commands]:
    """Arrays (.npz), tables (.csv, .parquet) and partitions of one's own, with a file or a key spoiled."""
    numbers, scenario = np.random.default_rng(rng.randrange(2**32)), json.loads(json.dumps(_WORLD))
    name = rng.choice(("own.npz", "own.csv", "own.parquet"))
    if name == "own.npz":
        x = numbers.normal(size=(60, 5)).astype(np.float32)
        content: Any = {"x": x, "y": numbers.integers(0, 3, 60), "client": np.arange(60) % 4}
        scenario["data"] = {"name": "arrays", "file": name}
    else:
        content = data.customers(numbers)
        scenario["data"] = {"name": "table", "file": name, "label": "bought", "client": "who"}
        scenario["data"] |= rng.choice(({}, {"missing": "fill"}, {"missing": "drop"}))
    files: Files = {name: content}
    partition = rng.choice(("natural", "iid", "split.json", "split.npz"))
    scenario["data"]["partition"] = partition
    if partition.startswith("split"):
        scenario["data"]["partition"] = {"kind": "file", "path": partition}
        lists = [list(range(client, 30, 4)) for client in range(4)]
        arrays = {f"train_{client}": np.array(each) for client, each in enumerate(lists)}
        files[partition] = arrays if partition.endswith(".npz") else json.dumps(lists)
    if rng.random() < 0.3:
        scenario["protocol"] = {"name": "fedavg", "local_steps": 2, "patience": "5 s"}
        scenario["server"] = {
            "step_time": "50 ms",
            "samples": 4,
            "crash": [{"at": "300 ms", "back": "500 ms"}],
        }
    return _written(scenario, files, rng, changes, of_scenario=0.25)


def image_folders(rng: Random, changes: int) -> tuple[list[str], Commands]:
    """A folder of images, with pictures, names or a key spoiled."""
    numbers, scenario = np.random.default_rng(rng.randrange(2**32)), json.loads(json.dumps(_WORLD))
    kind = rng.choice(("PNG", "JPEG", "WEBP", "BMP", "TIFF"))
    files: Files = dict(data.class_folders(numbers, ("no", "yes"), 12, side=6, kind=kind))
    scenario["data"] = {"name": "images", "source": "pictures", "partition": "iid"}
    scenario["data"] |= rng.choice(({}, {"size": 5}, {"grey": True}))
    if rng.random() < 0.3:  # a client each
        scenario["clients"]["count"] = 2
        scenario["data"] |= {"client_folders": True, "partition": "natural", "size": 7}
        files = {name.replace("/", f"/{who}/", 1): each for name, each in files.items() for who in "ab"}
    for _ in range(min(changes, rng.choice((0, 0, 1)))):
        folder = str(Path(rng.choice(list(files))).parent)
        files[f"{folder}/{rng.choice(_STRANGERS)}"] = b"x"
    files = {f"pictures/{name}": each for name, each in files.items()}
    return _written(scenario, files, rng, changes, of_scenario=0.2)


_STRANGERS = (
    "notes.txt",
    ".hidden.png",
    "Thumbs.db",
    "more.png/2.png",
    "../4.jpg",
    "x.PNG",
    "\n.gif",
    "5",
    "\u0301.bmp",
)


def saved_folders(rng: Random, changes: int) -> tuple[list[str], Commands]:
    """A folder of `save_to_disk`, of images or of rows, with a file or a key spoiled."""
    numbers, scenario = np.random.default_rng(rng.randrange(2**32)), json.loads(json.dumps(_WORLD))
    features: dict[str, Any] = {"label": {"_type": "ClassLabel", "names": ["no", "yes"]}}
    files: Files = {"saved/dataset_dict.json": {"splits": ["train", "test"]}}
    is_images = rng.random() < 0.5
    features |= {"image": {"_type": "Image"}} if is_images else {"age": {"_type": "Value", "dtype": "int64"}}
    for split, count in (("train", 40), ("test", 12)):
        rows: dict[str, Any] = {"label": np.arange(count) % 2, "who": np.arange(count) // 2 % 4}
        if is_images:
            images = [data.png(each) for each in numbers.integers(0, 256, (count, 6, 5), np.uint8)]
            content: Any = data.arrow(pa.table({**rows, "image": images}))
        else:
            content = rows | {
                "age": numbers.integers(18, 90, count),
                "pay": numbers.lognormal(8, 1, count),
            }
        files |= {f"saved/{split}/{name}": each for name, each in data.saved_split(content, features).items()}
    scenario["data"] = {"name": "huggingface", "source": "saved", "client": "who"}
    scenario["data"]["partition"] = rng.choice(("natural", "iid"))
    return _written(scenario, files, rng, changes, of_scenario=0.2)
