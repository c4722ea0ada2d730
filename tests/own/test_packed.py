"""Files of a few kB that hold far more: counted before they are unpacked, and refused in words."""

import gzip
import io
import json
import os
import pickle
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save

from sim.errors import UserError
from sim.files import input_file, machine
from sim.files.data_folder import DataFolder
from sim.files.input_file import InputFile, read_regular
from sim.files.input_table import TextFormat, read_table
from sim.files.saved_folder import read_split
from sim.learning.data.cifar import Cifar10
from sim.learning.data.pictures import pixels
from sim.learning.data.svhn import Svhn
from sim.learning.language.base import load_base
from tests.fuzz.data import saved_split

TEXT = TextFormat(",", "", (), "")
MIB = 2**20


@pytest.fixture
def one_mib(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a file may have, or hold."""
    monkeypatch.setattr(input_file, "LIMIT_BYTES", MIB)


@pytest.fixture
def small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "memory_bytes", lambda: 10 * MIB)


def refused(file: Path, text: TextFormat = TEXT) -> str:
    """What is said of a table."""
    with pytest.raises(UserError) as error:
        read_table(InputFile("data.file", file), text)
    return str(error.value)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("store_schema", [True, False])
@pytest.mark.usefixtures("one_mib")
def test_a_long_text_that_is_there_many_times(tmp_path: Path, kind: pa.DataType, store_schema: bool) -> None:
    places, texts = pa.array([0] * 400, pa.int32()), pa.array(["a" * 10_000], kind)
    file = tmp_path / "t.parquet"
    pq.write_table(
        pa.table({"x": pa.DictionaryArray.from_arrays(places, texts)}), file, store_schema=store_schema
    )
    assert file.stat().st_size < 20_000
    assert refused(file).endswith("t.parquet: exceeds 1 MiB when unpacked; must be smaller")


@pytest.mark.usefixtures("one_mib")
def test_texts_of_which_only_the_ends_are_stored(tmp_path: Path) -> None:
    table = pa.table({"x": [f"{'a' * 10_000}{number}" for number in range(400)]})
    file = tmp_path / "t.parquet"
    pq.write_table(table, file, use_dictionary=False, column_encoding={"x": "DELTA_BYTE_ARRAY"})
    assert file.stat().st_size < 20_000
    assert "exceeds 1 MiB when unpacked" in refused(file)


@pytest.mark.usefixtures("one_mib")
def test_columns_that_nobody_asks_for_are_not_unpacked(tmp_path: Path) -> None:
    places, texts = pa.array([0] * 400, pa.int32()), pa.array(["a" * 10_000])
    long = pa.DictionaryArray.from_arrays(places, texts)
    file = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": long, "n": range(400)}), file)
    assert read_table(InputFile("data.file", file), TEXT, ["n"])["n"].to_list() == list(range(400))


@pytest.mark.parametrize("content", [b"a,b\n" + b"1,2\n" * 200_000, b"a\n" + b"," * 400_000])
@pytest.mark.usefixtures("small_machine")
def test_many_values_of_few_bytes(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "t.csv.gz"
    file.write_bytes(gzip.compress(content))
    assert "GB of memory when read, but this process can use only 0.0 GB; must be smaller" in refused(file)


@pytest.mark.usefixtures("small_machine")
@pytest.mark.parametrize("piece", ["[],", "0,", "{},", "[[0],[0]],"])
def test_json_whose_objects_take_more_than_its_text(tmp_path: Path, piece: str) -> None:
    file = tmp_path / "p.json.gz"
    file.write_bytes(gzip.compress(f"[{piece * 300_000}0]".encode()))
    with pytest.raises(UserError, match=r"p\.json\.gz: takes 0\.\d GB of memory when read"):
        InputFile("data.partition.path", file).json()


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize("is_dictionary", [True, False])
@pytest.mark.usefixtures("one_mib")
def test_an_arrow_stream_with_packed_buffers(tmp_path: Path, compression: str, is_dictionary: bool) -> None:
    text = pa.array(["a" * 2 * MIB])
    column = text.dictionary_encode() if is_dictionary else text
    table, sink = pa.table({"x": column, "label": [0]}), io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table)
    for name, content in saved_split(sink.getvalue(), {}).items():
        is_arrow = name.endswith(".arrow")
        (tmp_path / name).write_bytes(content if is_arrow else json.dumps(content).encode())
    with pytest.raises(UserError, match=r"\.arrow: exceeds 1 MiB when unpacked; must be smaller"):
        read_split(InputFile("data.source", tmp_path))


def test_an_arrow_stream_with_packed_buffers_that_is_small_is_read(tmp_path: Path) -> None:
    table, sink = pa.table({"x": [f"text {n}" for n in range(500)], "label": [0, None] * 250}), io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(table)
    for name, content in saved_split(sink.getvalue(), {}).items():
        is_arrow = name.endswith(".arrow")
        (tmp_path / name).write_bytes(content if is_arrow else json.dumps(content).encode())
    assert read_split(InputFile("data.source", tmp_path)).table.equals(table)


def matlab(code: int, kind: int, shape: tuple[int, ...], length: int) -> bytes:
    """A file with X of a shape, whose data have so many bytes, all of them 0."""
    body = struct.pack("<IIII", 6, 8, code, 0) + struct.pack("<II4i", 5, 16, *shape)
    body += struct.pack("<HH4s", 1, 1, b"X\0\0\0") + struct.pack("<II", kind, length) + bytes(length)
    packed = zlib.compress(struct.pack("<II", 14, len(body)) + body)
    head = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<H", 0x0100) + b"IM"
    return head + struct.pack("<II", 15, len(packed)) + packed


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (matlab(6, 9, (32, 32, 3, 50), 8 * 3072 * 50), "which exceeds the limit of 1 MiB"),  # doubles
        (
            matlab(9, 2, (32, 32, 3, 1), 2 * MIB),
            "exceeds 1 MiB when unpacked",
        ),  # more than the shape says
    ],
)
@pytest.mark.usefixtures("one_mib")
def test_a_file_of_matlab(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "svhn").mkdir()
    for name in ("train_32x32.mat", "test_32x32.mat"):
        (tmp_path / "svhn" / name).write_bytes(content)
    data = Svhn.model_validate({"name": "svhn", "partition": "iid"})
    with pytest.raises(UserError, match=rf"train_32x32\.mat: .*{problem}"):
        data.read(DataFolder(tmp_path))


@pytest.mark.usefixtures("small_machine")
def test_a_sparse_base(tmp_path: Path) -> None:
    content = save({"wte.weight": np.zeros((256, 8), np.float32)})
    length = int.from_bytes(content[:8], "little")
    head = json.loads(content[8 : 8 + length])
    head["wte.weight"] |= {"shape": [256, 2**20], "data_offsets": [0, 4 * 2**28]}
    text = json.dumps(head).encode()
    file = tmp_path / "base.safetensors"
    file.write_bytes(len(text).to_bytes(8, "little") + text)
    os.truncate(file, 8 + len(text) + 4 * 2**28)
    with pytest.raises(UserError, match=r"base\.safetensors: takes 2\.1 GB of memory when read"):
        load_base(InputFile("model.base", file))


@pytest.mark.parametrize("key", [b"data", b"labels"])
def test_a_list_that_holds_another_many_times(tmp_path: Path, key: bytes) -> None:
    """A pickle of a kB, of which numpy would make 10**18 numbers."""
    nested: Any = 0
    for _ in range(9):
        nested = [nested] * 100
    batch = {b"data": np.zeros((4, 3072), np.uint8), b"labels": [0, 1, 2, 3], key: nested}
    (tmp_path / "cifar-10-batches-py").mkdir()
    for name in ("data_batch_1", "test_batch"):
        (tmp_path / "cifar-10-batches-py" / name).write_bytes(pickle.dumps(batch, protocol=2))
    data = Cifar10.model_validate({"name": "cifar-10", "partition": "iid"})
    with pytest.raises(UserError, match="must contain an array of images, and a number for each"):
        data.read(DataFolder(tmp_path))


@pytest.mark.usefixtures("small_machine")
def test_pictures_that_do_not_fit_once_they_are_numbers() -> None:
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (1000, 1000)).save(file, "PNG")
    with pytest.raises(UserError, match="1,000 x 1,000 pixels, and 5 such images do not fit in memory"):
        pixels([file.getvalue()] * 5, 5, None, lambda place, problem: UserError(problem), remedy="")


@pytest.mark.usefixtures("small_machine")
def test_arrays_that_do_not_fit_once_they_are_numbers(tmp_path: Path) -> None:
    from sim.learning.data.arrays import ArrayData

    np.savez_compressed(tmp_path / "a.npz", x=np.zeros((MIB, 1), np.uint8), y=np.zeros(MIB, np.uint8))
    keys = {"name": "arrays", "file": str(tmp_path / "a.npz"), "partition": "iid"}
    with pytest.raises(UserError, match=r"a\.npz: takes 0\.0 GB of memory when read"):
        ArrayData.model_validate(keys).load(3, 1, DataFolder(tmp_path))


@pytest.mark.parametrize("colours", [2, 4, 6])
def test_pictures_of_16_bits_in_each_of_several_channels(colours: int) -> None:
    """Pillow calls them RGB or RGBA, and cuts each number to 8 bits."""
    channels = {2: 3, 4: 2, 6: 4}[colours]
    rows = b"".join(b"\0" + np.arange(4 * channels, dtype=">u2").tobytes() for _ in range(4))

    def chunk(kind: bytes, content: bytes) -> bytes:
        end = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + end

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 4, 16, colours, 0, 0, 0))
    png = b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    with pytest.raises(UserError, match="contains an image with 16 bits in each channel; must have 8"):
        pixels([png], 1, None, lambda place, problem: UserError(problem), remedy="")


# --- how files are read ---------------------------------------------------------------------------------


def test_a_file_without_bytes_by_its_status_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of /proc are regular files: to read /proc/kmsg waits for what the system says next."""
    with pytest.raises(UserError, match="/proc/self/status: is empty"):
        InputFile("data.file", Path("/proc/self/status")).content()


@pytest.mark.usefixtures("one_mib")
def test_a_packed_file_that_is_long_itself(tmp_path: Path) -> None:
    """Behind the data of a .gz file zeros may follow, which are skipped one by one."""
    file = tmp_path / "t.csv.gz"
    file.write_bytes(gzip.compress(b"a,b\n1,2\n"))
    os.truncate(file, MIB)
    assert InputFile("data.file", file).text() == "a,b\n1,2\n"
    os.truncate(file, MIB + 1)
    with pytest.raises(UserError, match="exceeds 1 MiB; must be smaller"):
        InputFile("data.file", file).text()


def test_a_small_file_asks_for_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Noting(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            asked.append(size or 0)
            return super().read(size)

    (tmp_path / "t").write_bytes(b"abc")
    monkeypatch.setattr("builtins.open", lambda *_: Noting(b"abc"))
    assert read_regular(tmp_path / "t", 2**29) == b"abc"
    assert asked == [3]


def test_limits_of_memory_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the process, too, as `ulimit` sets them."""
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda kind: (12_345, 12_345))
    assert machine.memory_bytes() == 12_345
