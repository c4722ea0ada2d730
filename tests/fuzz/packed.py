"""Packed files: a few kB that say, or hold, far more than a machine has, of each kind that is read."""

import gzip
import io
import json
import lzma
import os
import pickle
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w

from tests.fuzz import data
from tests.fuzz.case import Commands

_PIECE_BYTES = 1 << 20
_WORLD: dict[str, Any] = {
    "run": {"iterations": 1, "evaluate_every": "1 iterations"},
    "clients": {"count": 3},
    "model": {"name": "logistic-regression"},
    "training": {"learning_rate": 0.1, "batch_size": 4},
    "protocol": {"name": "local"},
    "network": {"latency": "20 ms", "uplink": "unlimited", "downlink": "unlimited"},
    "devices": {"step_time": "100 ms"},
}

Made = dict[str, Any]
"""Sections of the scenario, beside which the files were written."""


def _deflated(piece: bytes, size: int) -> bytes:
    """Raw DEFLATE of a piece again and again, up to so many bytes: a flushed block may be repeated."""
    packer = zlib.compressobj(9, wbits=-15)
    block = packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH)
    return block * max(1, size // len(piece)) + packer.flush()


def _compressed(name: str, piece: bytes, size: int) -> str:
    """Write a file of a piece again and again, as .gz or .xz; returns its name."""
    pack = gzip.compress if name.endswith(".gz") else lzma.compress
    pieces = piece * max(1, _PIECE_BYTES // len(piece))
    Path(name).write_bytes(pack(pieces) * max(1, size // len(pieces)))
    return name


def _piece(rng: Random) -> bytes:
    """What a file of text may hold many times."""
    some = (
        b"0,",
        b"a,b\n",
        b",",
        b"\n",
        b"[",
        b"[],",
        b"1,2,3\n",
        b"word ",
        b"x",
        b"\0",
        b'"',
        b"\xc3\xa9\n",
    )
    return rng.choice(some)


def _table(rng: Random, size: int) -> Made:
    name = rng.choice(("t.csv.gz", "t.csv.xz", "t.parquet"))
    if name != "t.parquet":
        head = rng.choice((b"x,y\n1,a\n2,b\n", b""))
        _compressed(name, _piece(rng), size)
        Path(name).write_bytes(
            (gzip if name.endswith(".gz") else lzma).compress(head) + Path(name).read_bytes()
        )
        return {"data": {"name": "table", "file": name, "label": "y", "partition": "iid"}}
    rows = rng.choice((10, 1000, 100_000, min(size, 10**7)))
    text = rng.choice("ab") * max(1, min(size // rows, 10**7))
    kind = rng.choice((pa.string(), pa.large_string(), pa.binary()))
    columns: dict[str, Any] = {"y": pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int8()), ["q"])}
    options: dict[str, Any] = {}
    match rng.choice(("texts", "texts", "numbers", "delta", "null")):
        case "texts":
            places = pa.array(np.zeros(rows, np.int32))
            columns["x"] = pa.DictionaryArray.from_arrays(places, pa.array([text], kind))
        case "numbers":
            columns |= {f"x{number}": pa.array(np.zeros(rows)) for number in range(rng.choice((1, 8)))}
        case "delta":
            rows, text = min(rows, 1000), text[:1_000_000]
            texts = [f"{text}{number}" for number in range(min(rows, max(1, 10**8 // len(text))))]
            columns = {"x": pa.array(texts), "y": pa.array(["q"] * len(texts))}
            options = {"use_dictionary": ["y"], "column_encoding": {"x": "DELTA_BYTE_ARRAY"}}
        case _:
            columns["x"] = pa.nulls(rows)
    store = rng.random() < 0.5
    pq.write_table(pa.table(columns), name, compression="zstd", store_schema=store, **options)
    return {"data": {"name": "table", "file": name, "label": "y", "partition": "iid"}}


def _npy_head(rng: Random, size: int) -> bytes:
    """The head of an .npy file that says an array of so many bytes."""
    kind = np.dtype(rng.choice(("<f8", "|u1", "<f2", "<i8", "<U9", "|V9")))
    count = max(1, size // kind.itemsize)
    shape = rng.choice(((count,), (count, 1), (max(1, count // 100), 100)))
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": kind.str, "fortran_order": False, "shape": shape})
    return head.getvalue()


def _member(name: str, content: bytes, size: int) -> tuple[bytes, bytes]:
    """A member of a zip archive, and its entry in the directory, without the place: raw DEFLATE of a size."""
    common = struct.pack("<HHHHHIII", 20, 0, 8, 0, 0, 0, len(content), min(size, 2**32 - 1))
    encoded = name.encode()
    local = b"PK\x03\x04" + common + struct.pack("<HH", len(encoded), 0) + encoded + content
    return local, b"PK\x01\x02" + struct.pack("<H", 20) + common + struct.pack(
        "<HHHHHI", len(encoded), 0, 0, 0, 0, 0
    )


def _arrays(rng: Random, size: int) -> Made:
    archive, directory = b"", b""
    for name in ("x.npy", "y.npy"):
        head = _npy_head(rng, size)
        # The head, and as many zeros as it says, or none.
        packer = zlib.compressobj(9, wbits=-15)
        begin = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
        rest = _deflated(bytes(_PIECE_BYTES), size) if rng.random() < 0.8 else _deflated(b"0", 1)
        local, entry = _member(name, begin + rest, rng.choice((size + len(head), 100)))
        directory += entry + struct.pack("<I", len(archive)) + name.encode()
        archive += local
    end = struct.pack("<HHHHIIH", 0, 0, 2, 2, len(directory), len(archive), 0)
    Path("a.npz").write_bytes(archive + directory + b"PK\x05\x06" + end)
    keys = rng.choice(({}, {"standardise": True}))
    return {"data": {"name": "arrays", "file": "a.npz", "partition": "iid"} | keys}


def _partition(rng: Random, size: int) -> Made:
    name = _compressed(rng.choice(("p.json.gz", "p.json.xz")), _piece(rng), size)
    return {"data": {"name": "digits", "partition": {"kind": "file", "path": name}}}


def _matrix(rng: Random, size: int) -> Made:
    if rng.random() < 0.5:
        name = _compressed("m.csv.gz", _piece(rng), size)
    else:
        name = "m.npy.gz"
        Path(name).write_bytes(gzip.compress(_npy_head(rng, size)))
        if rng.random() < 0.7:
            head = Path(name).read_bytes()
            _compressed(name, b"\0", size)
            Path(name).write_bytes(head + Path(name).read_bytes())
    digits = {"name": "digits", "partition": "iid"}
    latency = {"kind": "matrix", "file": name, "unit": "ms"}
    return {"data": digits, "network": _WORLD["network"] | {"latency": latency}}


def _saved(rng: Random, size: int) -> Made:
    rows = rng.choice((10, 1000, min(size // 8, 2 * 10**6)))
    text = "a" * max(1, min(size // rows, 10**8))
    column: Any = rng.choice(
        (
            lambda: pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), [text]),
            lambda: pa.array(np.zeros(rows)),
            lambda: pa.array([text[: 10**8 // rows + 1]] * rows),
            lambda: pa.nulls(rows),
        )
    )()
    table = pa.table({"x": column, "label": np.arange(rows) % 2})
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=rng.choice((None, "zstd", "lz4")))
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        for _ in range(max(1, min(8, size // max(1, table.nbytes)))):
            stream.write_table(table)
    features = {"label": {"_type": "ClassLabel", "names": ["no", "yes"]}}
    for name, each in data.saved_split(b"", features).items():
        Path("saved").mkdir(exist_ok=True)
        content = sink.getvalue() if name.endswith(".arrow") else json.dumps(each).encode()
        Path("saved", name).write_bytes(content)
    return {"data": {"name": "huggingface", "source": "saved", "partition": "iid"}}


def _matlab(rng: Random, size: int) -> Made:
    """X of a type and shape, whose data may have another length than that."""
    code, width = rng.choice(((9, 1), (6, 8), (10, 2)))  # of bytes, doubles, int16
    count = max(1, min(size, 2**31) // (3072 * width))
    shape = rng.choice(((32, 32, 3, count), (32, 32, 3, 1)))
    length = rng.choice((size, 3072 * width * count)) % 2**32
    body = struct.pack("<IIII", 6, 8, code, 0) + struct.pack("<II4i", 5, 16, *shape)
    body += struct.pack("<HH4s", 1, 1, b"X\0\0\0") + struct.pack("<II", {1: 2, 8: 9, 2: 3}[width], length)
    packer = zlib.compressobj(9)
    element = struct.pack("<II", 14, (len(body) + length) % 2**32) + body
    packed = packer.compress(element) + packer.flush(zlib.Z_FULL_FLUSH) + _deflated(bytes(_PIECE_BYTES), size)
    head = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<H", 0x0100) + b"IM"
    Path("data/svhn").mkdir(parents=True)
    for name in ("train_32x32.mat", "test_32x32.mat"):
        Path("data/svhn", name).write_bytes(head + struct.pack("<II", 15, len(packed)) + packed)
    return {"data": {"name": "svhn", "partition": "iid"}}


def _images(rng: Random, size: int) -> Made:
    """MNIST: as many pictures as fit, with a pattern or of one color."""
    Path("data/MNIST/raw").mkdir(parents=True)
    piece = rng.choice((bytes(range(256)) * 4, bytes(1024)))
    count = max(1, size // 784)
    for part in ("train", "t10k"):
        suffix = rng.choice((".gz", ".xz"))
        pack = gzip.compress if suffix == ".gz" else lzma.compress
        for name, axes in (
            (f"{part}-images-idx3-ubyte", (count, 28, 28)),
            (f"{part}-labels-idx1-ubyte", (count,)),
        ):
            file = f"data/MNIST/raw/{name}{suffix}"
            head = bytes((0, 0, 8, len(axes))) + b"".join(length.to_bytes(4, "big") for length in axes)
            _compressed(file, piece if len(axes) == 3 else b"\0", int(np.prod(axes)))
            Path(file).write_bytes(pack(head) + Path(file).read_bytes())
    return {"data": {"name": "mnist", "partition": "iid"}}


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _pictures(rng: Random, size: int) -> Made:
    side = max(1, min(int((size / 3) ** 0.5), rng.choice((100, 3000, 9000, 100_000))))
    depth = rng.choice((8, 8, 16))
    head = struct.pack(">IIBBBBB", side, side, depth, 2, 0, 0, 0)
    raw = b"\x78\x9c" + _deflated(bytes(_PIECE_BYTES), side * (1 + 3 * side * depth // 8))
    png = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", raw) + _chunk(b"IEND", b"")
    for label in ("no", "yes"):
        Path("pictures", label).mkdir(parents=True)
        for number in range(rng.choice((2, 20))):
            Path("pictures", label, f"{number}.png").write_bytes(png)
    keys = rng.choice(({}, {"size": 8}, {"size": 4096}))
    return {"data": {"name": "images", "source": "pictures", "partition": "iid"} | keys}


def _texts(rng: Random, size: int) -> Made:
    files = [_compressed(f"{name}.txt.gz", _piece(rng), size) for name in "ab"]
    texts = [{"language": file[0], "file": file} for file in files]
    tokens = rng.choice(("bytes", "characters"))
    words = {"name": "text", "texts": texts, "context": 8, "tokenizer": tokens}
    return {"data": words, "model": {"name": "transformer", "width": 8, "depth": 1, "heads": 2}}


def _base(rng: Random, size: int) -> Made:
    """A base whose file is sparse: it takes no room on the disk."""
    for name in "ab":
        Path(f"{name}.txt").write_text("abba " * 60, encoding="utf-8")
    shapes = {"wte.weight": (256, max(8, size // 1024)), "wpe.weight": (8, 8), "h.0.mlp.c_fc.weight": (8, 32)}
    tensors, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 4 * shape[0] * shape[1]
        tensors[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    notes = json.dumps({"heads": 2, "tokenizer": "bytes"})
    head = json.dumps({"__metadata__": {"coterie": notes}, **tensors}).encode()
    Path("base.safetensors").write_bytes(len(head).to_bytes(8, "little") + head)
    os.truncate("base.safetensors", 8 + len(head) + end)
    texts = [{"language": name, "file": f"{name}.txt"} for name in "ab"]
    data_section = {"name": "text", "texts": texts, "context": 8}
    return {"data": data_section, "model": {"name": "lora", "base": "base.safetensors", "rank": 2}}


def _pickles(rng: Random, size: int) -> Made:
    """CIFAR-10's batches, with a list that holds another many times, and that one a third."""
    nested: Any = 0
    for _ in range(rng.choice((3, 9))):
        nested = [nested] * rng.choice((10, 100))
    batch = {b"data": np.zeros((4, 3072), np.uint8), b"labels": [0, 1, 2, 3]}
    batch[rng.choice(list(batch))] = nested
    Path("data/cifar-10-batches-py").mkdir(parents=True)
    for name in ("data_batch_1", "test_batch"):
        Path("data/cifar-10-batches-py", name).write_bytes(pickle.dumps(batch, protocol=2))
    return {"data": {"name": "cifar-10", "partition": "iid"}}


def _sparse(rng: Random, size: int) -> Made:
    """A file of any kind that is as long as it says, and holds nothing."""
    made = rng.choice((_table, _arrays, _matrix, _partition))(rng, _PIECE_BYTES)
    for path in Path().iterdir():
        if path.is_file() and path.suffix != ".toml":
            os.truncate(path, size)
    return made


_MAKERS: tuple[Callable[[Random, int], Made], ...] = (
    *(_table, _table, _arrays, _partition, _matrix, _saved, _saved, _matlab, _images),
    *(_pictures, _texts, _base, _pickles, _sparse),
)


def packed(rng: Random, changes: int) -> tuple[list[str], Commands]:
    """A scenario with a packed file, of from a MB to 20 GB once it is unpacked."""
    if Path("data").is_symlink():
        Path("data").unlink()
    made, words = {"data": {"name": "digits", "partition": "iid"}}, []
    if changes:
        size, maker = int(10 ** rng.uniform(6, 10.3)), rng.choice(_MAKERS)
        made, words = maker(rng, size), [f"{maker.__name__[1:]} of {size:,} bytes"]
    Path("scenario.toml").write_text(tomli_w.dumps(_WORLD | made), encoding="utf-8")
    return words, [["check", "scenario.toml"], ["run", "scenario.toml", "--quiet"]]
