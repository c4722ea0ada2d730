"""Small data folders that pass all checks: images, and measured traces of networks, devices and churn."""

import gzip
import io
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import scipy.io
from PIL import Image

_IMAGES = {"train": 800, "t10k": 100}
_PER_CLASS = 6  # of CIFAR-100
CINIC_10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def idx(array: np.ndarray) -> bytes:
    """An idx file of unsigned bytes, whatever the array's type is; zeros for what are no numbers."""
    numbers = array if array.dtype.kind in "biuf" else np.zeros(array.shape, np.uint8)
    head = bytes((0, 0, 8, array.ndim)) + b"".join(int(length).to_bytes(4, "big") for length in array.shape)
    with np.errstate(invalid="ignore"):
        return head + numbers.astype(np.uint8).tobytes()


def npy(array: np.ndarray) -> bytes:
    """An .npy file; objects are pickled."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    """An .npz file, compressed."""
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def mat(arrays: Mapping[str, np.ndarray]) -> bytes:
    """A .mat file of MATLAB 5, compressed."""
    file = io.BytesIO()
    try:
        scipy.io.savemat(file, dict(arrays), do_compression=True)
    except (TypeError, ValueError):  # of what MATLAB has not
        return repr(arrays).encode()
    return file.getvalue()


def _labels(count: int, classes: int) -> np.ndarray:
    return np.arange(count) % classes


def _pixels(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Eight different images again and again, which are packed fast."""
    return np.resize(rng.integers(0, 256, (8, *shape[1:]), dtype=np.uint8), shape)


def grey_images(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The four arrays of MNIST or Fashion-MNIST, by the names of their idx files."""
    arrays = {}
    for part, count in _IMAGES.items():
        arrays[f"{part}-images-idx3-ubyte"] = _pixels(rng, count, 28, 28)
        arrays[f"{part}-labels-idx1-ubyte"] = _labels(count, 10).astype(np.uint8)
    return arrays


def cifar_10(rng: np.random.Generator) -> dict[str, dict[bytes, object]]:
    """CIFAR-10's batches, as they are pickled, by the names of their files."""
    return {
        file: {b"data": _pixels(rng, count, 3072), b"labels": _labels(count, 10).tolist()}
        for file, count in {"data_batch_1": 800, "test_batch": 100}.items()
    }


def svhn(rng: np.random.Generator) -> dict[str, dict[str, np.ndarray]]:
    """SVHN's arrays, by the names of their files."""
    return {
        f"{part}_32x32.mat": {"X": _pixels(rng, count, 32, 32, 3).transpose(1, 2, 3, 0), "y": labels[:, None]}
        for part, count in {"train": 800, "test": 100}.items()
        for labels in [(1 + _labels(count, 10)).astype(np.uint8)]
    }


def class_folders(
    rng: np.random.Generator, classes: Sequence[str], train: int, *, side: int, kind: str = "PNG"
) -> dict[str, bytes]:
    """So many pictures of each class to train on, and two to test on, by their files' paths."""
    return {
        f"{part}/{label}/{number}.{kind.lower()}": png(image, kind)["bytes"]
        for part, count in {"train": train, "test": 2}.items()
        for label in classes
        for number, image in enumerate(_pixels(rng, count, side, side, 3))
    }


def cinic_10(rng: np.random.Generator) -> dict[str, bytes]:
    """The pictures of CINIC-10, by their files' paths."""
    return class_folders(rng, CINIC_10, 8, side=32)


def cifar_arrays(rng: np.random.Generator) -> dict[str, np.ndarray | dict[str, np.ndarray]]:
    """The arrays of the subset of CIFAR-100, by the names of their files."""
    train, test = 100 * _PER_CLASS, 200
    labels = {"y_train": _labels(train, 100).astype(np.uint8), "y_test": _labels(test, 100).astype(np.uint8)}
    return {
        "x_train.npy": _pixels(rng, train, 3, 32, 32),
        "x_test.npy": _pixels(rng, test, 3, 32, 32),
        "labels.npz": labels,
    }


def round_trips(rng: np.random.Generator, source: str) -> dict[str, np.ndarray]:
    """The arrays of a latency trace of 60 nodes, in the file's own units."""
    nodes, slices = 60, 3
    seconds = rng.lognormal(-3, 0.5, (slices, nodes, nodes))
    seconds[:, range(nodes), range(nodes)] = 0
    median = np.median(seconds, axis=0)
    if source == "planetlab":
        return {
            "rtt_ms_median": (median * 1e3).astype(np.float32),
            "rtt_ms_slices": (seconds * 1e3).astype(np.float32),
        }
    return {
        "rtt_s_median": median.astype(np.float32),
        "rtt_centiseconds": np.ceil(seconds * 100).astype(np.uint16),
    }


def tables(rng: np.random.Generator) -> dict[str, str]:
    """The traces that are tables, by their files."""
    phones = "".join(f"{n},{2000 + 100 * n}.5,300.25,{1000 + 50 * n}.5,200.75\n" for n in range(19))
    scores = "".join(f'{70000 - 900 * n},"Phone {n}, large",Chip {n},8GB\n' for n in range(60))
    sessions = []
    for run in ("aws_2020-03-15", "gcp_2020-03-01", "gcp_2020-03-04"):
        for number in range(40):
            start = int(rng.integers(0, 20000))
            end = start + int(rng.integers(60, 20000))
            row = f"{run},i-{number},us-east-1b,v100,1,{start},{end},{number % 2}"
            sessions.append(row + "\n")
    curve = "".join(f"{time},{size}\n" for time, size in ((0, 0), (9, 0), (9, 4), (50, 2), (85.5, 7)))
    ends = {
        "g4dn_us-east-1c_2020-11-20": "88194,7\n",
        "g4dn_us-east-1d_2020-11-23": "45668,8\n",
        "p2_2020-11-20": "88.695,14\n",
    }
    return {
        "device-traces/phone_bandwidth.csv": f"device,down_mean,down_std,up_mean,up_std\n{phones}",
        "device-traces/ai_benchmark_2020.csv": f"ai_score,Model,CPU,RAM\n{scores}",
        "spot-churn/spot_sessions_2020.csv": "run,instance,zone,gpu,n_gpus,start_s,end_s,censored\n"
        + "".join(sessions),
    } | {f"spot-churn/spot_cluster_size_{name}.csv": curve + end for name, end in ends.items()}


def trace(file: str, rng: np.random.Generator) -> str | dict[str, np.ndarray]:
    """The content of a trace's file below `data`."""
    name = file.removeprefix("data/")
    return round_trips(rng, Path(name).name.partition("_")[0]) if name.endswith(".npz") else tables(rng)[name]


def customers(rng: np.random.Generator, rows: int = 48) -> str:
    """A table of the user's own, as CSV."""
    columns = {
        "age": rng.integers(18, 90, rows),
        "pay": rng.lognormal(8, 1, rows),
        "city": rng.choice(["Bern", "Genf", "Zug"], rows),
        "who": np.arange(rows) % 4,
        "bought": rng.choice(["yes", "no"], rows),
    }
    return pl.DataFrame(columns).write_csv()


def arrow(table: pa.Table) -> bytes:
    """The content of an Arrow file as datasets writes it: a stream."""
    file = io.BytesIO()
    with pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    return file.getvalue()


def saved_split(rows: Any, features: Mapping[str, Any]) -> dict[str, Any]:
    """The files of a split as `save_to_disk` writes them, the Arrow file with any content."""
    return {
        "data-00000-of-00001.arrow": rows,
        "dataset_info.json": {"citation": "", "features": dict(features), "license": ""},
        "state.json": {
            "_data_files": [{"filename": "data-00000-of-00001.arrow"}],
            "_fingerprint": "f2c6d9014b5d1824",
            "_format_type": None,
            "_split": None,
        },
    }


def png(pixels: np.ndarray, kind: str = "PNG") -> dict[str, Any]:
    """An image uint8 [height, width] or [height, width, channels] as datasets stores it."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return {"bytes": file.getvalue(), "path": None}


def write_all(folder: Path) -> None:
    """A data folder with everything that a shipped scenario, or a variation of it, may ask for."""
    rng = np.random.default_rng(1)
    files: dict[str, bytes] = {name: text.encode() for name, text in tables(rng).items()}
    for place in ("MNIST/raw", "FashionMNIST/raw"):
        arrays = grey_images(rng).items()
        files |= {f"{place}/{name}.gz": gzip.compress(idx(array), 1, mtime=0) for name, array in arrays}
    for name, batch in cifar_10(rng).items():
        files[f"cifar-10-batches-py/{name}"] = pickle.dumps(batch, protocol=2)
    for name, array in cifar_arrays(rng).items():
        files[f"cifar-100-subset/{name}"] = npz(array) if isinstance(array, dict) else npy(array)
    for source, file in (("planetlab", "planetlab_rtt_ms"), ("seattle", "seattle_rtt_s")):
        files[f"net-latency/{file}.npz"] = npz(round_trips(rng, source))
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
