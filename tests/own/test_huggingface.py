"""Data sets of the Hugging Face Hub, from folders: images or rows, or refused. No network."""

import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from typer.testing import CliRunner

from sim.cli.studies import app
from sim.errors import UserError
from sim.files import input_file
from sim.files.data_folder import DataFolder
from sim.learning.data import pictures
from sim.learning.data.dataset import Dataset
from sim.scenario.resolved import digest
from sim.scenario.scenario import load_scenario
from tests.fuzz.data import arrow, png, saved_split
from tests.own.data_worlds import built, load, owned
from tests.own.test_tables import section

RNG = np.random.default_rng(3)
GREY = RNG.integers(0, 256, (30, 5, 4), dtype=np.uint8)
CLASSES = {"_type": "ClassLabel", "names": ["0", "none", "two", "three"]}
FEATURES = {"image": {"_type": "Image"}, "label": CLASSES}
ARROW = "data-00000-of-00001.arrow"


def images(pixels: Any = GREY, **columns: Any) -> dict[str, Any]:
    """Columns of images and labels 0, 1, 2, 0, ..."""
    return {"image": [png(each) for each in pixels], "label": np.arange(len(pixels)) % 3, **columns}


def saved(folder: Path, features: Mapping[str, Any] = FEATURES, **splits: Mapping[str, Any]) -> str:
    """A folder of `save_to_disk` with these splits' columns, without that package."""
    folder.mkdir(exist_ok=True)
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": list(splits)}))
    for split, columns in splits.items():
        (folder / split).mkdir(exist_ok=True)
        rows = arrow(pa.table({name: pa.array(list(each)) for name, each in columns.items()}))
        for name, content in saved_split(rows, features).items():
            binary = content if isinstance(content, bytes) else json.dumps(content).encode()
            (folder / split / name).write_bytes(binary)
    return str(folder)


def read(source: str, **keys: Any) -> Dataset:
    return section({"name": "huggingface", "source": source, "partition": "iid", **keys})


def unscaled(data: Dataset, x: Any) -> np.ndarray:
    """The pixels of images."""
    assert data.scaling is not None
    mean, std = [np.array(each).reshape(1, -1, 1, 1) for each in data.scaling]
    return np.rint((x * std + mean) * 255).astype(int)


# Images -------------------------------------------------------------------------------------------------


def test_images_and_classes_are_found(tmp_path: Path) -> None:
    note = ["x"] * 30
    data = read(saved(tmp_path / "s", train=images(note=note), test=images(GREY[:6], note=note[:6])))
    assert np.array_equal(unscaled(data, data.train_x), GREY[:, None])
    assert np.array_equal(unscaled(data, data.test_x), GREY[:6, None])
    assert data.train_y.tolist() == [0, 1, 2] * 10 and data.outputs == 4  # also those that no image has
    assert abs(float(data.train_x.mean())) < 1e-6 and abs(float(data.train_x.std()) - 1) < 1e-2
    assert data.features == "images of 1 x 5 x 4 numbers, column 'image'"


def test_colours_and_one_channel_that_is_the_same_everywhere(tmp_path: Path) -> None:
    pixels = RNG.integers(0, 256, (20, 6, 5, 3), dtype=np.uint8)
    pixels[..., 1] = 100
    data = read(saved(tmp_path / "s", train=images(pixels)), test_share=0.5)
    assert data.input_shape == (3, 6, 5) and (len(data.train_x), len(data.test_x)) == (9, 11)
    assert float(np.abs(data.train_x[:, 1]).max()) < 1e-6
    found = np.concatenate([unscaled(data, data.train_x), unscaled(data, data.test_x)])
    assert np.array_equal(np.sort(found[:, 0].sum(axis=(1, 2))), np.sort(pixels[..., 0].sum(axis=(1, 2))))
    plain = read(saved(tmp_path / "s", train=images(pixels)), standardise=False)
    assert plain.scaling == ((0, 0, 0), (1, 1, 1)) and float(plain.train_x[0, 1, 0, 0]) == np.float32(
        100 / 255
    )


@pytest.mark.parametrize("mode", ["1", "P", "RGBA", "L as RGB"])
def test_modes_of_images(tmp_path: Path, mode: str) -> None:
    encoded = []
    for each in GREY:
        file = io.BytesIO()
        Image.fromarray(each).convert(mode[:4].strip() if mode != "L as RGB" else "L").save(file, "PNG")
        encoded.append({"bytes": file.getvalue(), "path": "a.png"})
    meaning = {"_type": "Image", "mode": "RGB"} if mode == "L as RGB" else {"_type": "Image"}
    source = saved(tmp_path / "s", {**FEATURES, "image": meaning}, train={**images(), "image": encoded})
    assert read(source).input_shape == ({"1": 1, "RGBA": 4}.get(mode, 3), 5, 4)


def test_images_of_16_bits_are_not_cut_off_at_255(tmp_path: Path) -> None:
    meaning = FEATURES | {"image": {"_type": "Image", "mode": "RGB"}}
    source = saved(tmp_path / "s", meaning, train={**images(), "image": DEEP})
    with pytest.raises(
        UserError, match=r"row 0: column 'image' contains an image of the mode I;16; must have 8"
    ):
        read(source)


def test_images_are_turned_as_their_camera_says(tmp_path: Path) -> None:
    turned = Image.Exif()
    turned[0x0112] = 6
    encoded = []
    for each in GREY:
        file = io.BytesIO()
        Image.fromarray(each).save(file, "PNG", exif=turned)
        encoded.append({"bytes": file.getvalue(), "path": None})
    data = read(saved(tmp_path / "s", train={**images(), "image": encoded}, test=images(GREY.swapaxes(1, 2))))
    assert np.array_equal(unscaled(data, data.train_x)[:, 0], np.rot90(GREY, -1, (1, 2)))


def test_clients_splits_and_rows_without_a_class(tmp_path: Path) -> None:
    label = np.where(np.arange(30) == 7, -1, np.arange(30) % 3)
    writer = [f"w{n % 3}" for n in range(30)]
    more = images(label=label, writer=writer)
    source = saved(tmp_path / "s", all=more, held=images(GREY[:6], writer=writer[:6]))
    keys = {"split": "all", "test_split": "held", "client": "writer", "partition": "natural"}
    data = read(source, **keys, missing="drop")
    assert len(data.train_x) == 29 and np.array_equal(unscaled(data, data.train_x)[7, 0], GREY[8])
    assert data.owners is not None and data.owners.names == ("w0", "w1", "w2")
    with pytest.raises(UserError, match=r"s/all, row 7: column 'label' has no value"):
        read(source, **keys)


def test_a_scenario_of_images_is_run(tmp_path: Path) -> None:
    saved(tmp_path / "s", train=images(), test=images(GREY[:6]))
    keys = 'name = "huggingface"\nsource = "s"\npartition = "iid"'
    crop = "training.augmentation.flip=0.5"
    simulation = built(tmp_path, keys, crop)
    assert [len(x) for x, _ in owned(simulation, "train")] == [10, 10, 10]
    saved(tmp_path / "s", {"label": CLASSES}, train={"age": range(30), "label": np.arange(30) % 3})
    with pytest.raises(
        UserError, match=r'augmentation: changes images, but data.name = "huggingface" has rows'
    ):
        built(tmp_path, keys, crop)


# Rows of a table ----------------------------------------------------------------------------------------


def test_rows_of_a_table(tmp_path: Path) -> None:
    features = {"ward": CLASSES, "outcome": {"_type": "Value", "dtype": "string"}}
    columns = {
        "age": [30, 50, 40, 60],
        "ward": [0, 1, 0, 3],
        "city": ["Bern ", "Zug", "Bern", "Zug"],
        "clinic": [2, 1, 2, 1],
        "outcome": ["well", "ill", "ill", "well"],
        "words": [[1], [2, 3], [], [4]],
    }
    source = saved(tmp_path / "s", features, train=columns, test=columns)
    keys: dict[str, Any] = {"client": "clinic", "leave_out": ["words"], "partition": "natural"}
    data = read(source, label="outcome", standardise=False, **keys)
    # age; ward: "0", none, three; city: Bern, Zug
    assert data.train_x.tolist() == [
        [30, 1, 0, 0, 1, 0],
        [50, 0, 1, 0, 0, 1],
        [40, 1, 0, 0, 1, 0],
        [60, 0, 0, 1, 0, 1],
    ]
    assert data.train_y.tolist() == [1, 0, 0, 1]
    assert data.owners is not None and data.owners.names == ("1", "2")
    assert read(source, **keys).train_y.tolist() == [0, 1, 0, 3]  # the only column of classes
    assert read(source, label="age", task="regression", **keys).train_y.tolist() == [[30], [50], [40], [60]]
    with pytest.raises(UserError, match=r"row 0: column 'ward' is '0'|must be a finite float32 number"):
        read(source, label="city", task="regression", **keys)


# What is refused ----------------------------------------------------------------------------------------

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 5\n"
WIDE = [png(np.zeros((5, 4, 3), np.uint8))] + [png(each) for each in GREY[1:]]
DEEP = [png(GREY[0].astype(np.uint16) * 256)] + [png(each) for each in GREY[1:]]

WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no such split": (
        {},
        {"split": "training"},
        "s: has no split 'training', the value of data.split; it has train$",
    ),
    "no such test split": (
        {},
        {"test_split": "dev"},
        "has no split 'dev', the value of data.test_split; it has train",
    ),
    "no such label": ({}, {"label": "y"}, "s/train: has no column 'y'; it has image, label"),
    "no such feature": (
        {},
        {"features": ["picture"]},
        "s/train: has no column 'picture'; it has image, label",
    ),
    "no such client": ({}, {"client": "writer"}, "s/train: has no column 'writer'; it has image, label"),
    "images as labels": (
        {},
        {"label": "image"},
        "column 'image' has type struct.*must contain numbers or text",
    ),
    "two images": (
        {"other": images()["label"]},
        {"features": ["image", "other"]},
        "must be a single column of images",
    ),
    "a class too many": (
        {"label": [4] * 30},
        {},
        "row 0: column 'label' is 4; must be a class from 0 to 3, or -1",
    ),
    "a label between": ({"label": [0.5] * 30}, {}, "column 'label' must contain whole numbers"),
    "no labels at all": (
        {"label": [None] * 30},
        {},
        "column 'label' must contain whole numbers",
    ),
    "one class": ({"label": [-1] * 30}, {}, "row 0: column 'label' has no value; add a value"),
    "images of two sizes": (
        {"image": [png(GREY[0])] * 29 + [png(GREY[0].T)]},
        {},
        r"row 29: column 'image' contains an image of 5 x 4 pixels with 1 channel, but the first has 4 x 5 "
        r"pixels with 1 channel; all must be equal: data.map\(",
    ),
    "gray and colored": (
        {"image": WIDE},
        {},
        "4 x 5 pixels with 1 channel, .* 4 x 5 pixels with 3 channels; all",
    ),
    "16 bits": (
        {"image": DEEP},
        {},
        r"row 0: column 'image' contains an image of the mode I;16; must be gray or RGB",
    ),
    "no image": (
        {"image": [None, *WIDE[1:]]},
        {},
        "row 0: column 'image' contains no image; leave the row out",
    ),
    "a path alone": (
        {"image": [{"bytes": None, "path": "/etc/passwd"}, *WIDE[1:]]},
        {},
        "row 0: column 'image' contains no image; leave the row out",
    ),
    "a damaged image": (
        {"image": [*WIDE[1:], {"bytes": DEEP[1]["bytes"][:50], "path": None}]},
        {},
        "row 29: column 'image' does not contain an intact image .PNG, .*",
    ),
    "a program": (
        {"image": [{"bytes": EPS, "path": None}] * 30},
        {},
        "row 0: .*does not contain an intact image .PNG, JPEG",
    ),
    "texts as images": (
        {"image": ["a.png"] * 30},
        {},
        "column 'image' contains string; must contain images with their",
    ),
    "a subset of a folder": (
        {},
        {"subset": "plain"},
        "data.subset applies only to the Hub; data.source = .*s is the path of a folder",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_refused(tmp_path: Path, wrong: str) -> None:
    columns, keys, message = WRONG[wrong]
    with pytest.raises(UserError, match=message):
        read(saved(tmp_path / "s", train=images(**columns)), **keys)


def test_columns_that_say_too_little(tmp_path: Path) -> None:
    plain = saved(tmp_path / "plain", {"image": {"_type": "Image"}}, train=images())
    with pytest.raises(
        UserError, match=r"has no column of classes; set data\.label to .* label, one of image, label"
    ):
        read(plain)
    assert read(plain, label="label").outputs == 3
    coarse = {**FEATURES, "coarse": CLASSES}
    both = saved(tmp_path / "both", coarse, train=images(coarse=[0, 1] * 15))
    with pytest.raises(UserError, match=r"has the columns label, coarse of classes; set data\.label to"):
        read(both)
    assert read(both, leave_out=["coarse"]).train_y.max() == 2
    with pytest.raises(
        UserError, match=r"two/train: has images in image, mask; data\.features must be a single column"
    ):
        masks = {**FEATURES, "mask": {"_type": "Image"}}
        read(saved(tmp_path / "two", masks, train=images(mask=images()["image"])))


def test_images_of_another_size_in_the_test_split(tmp_path: Path) -> None:
    source = saved(tmp_path / "s", train=images(), test=images(GREY[:, :4]))
    with pytest.raises(UserError, match=r"column 'image' of test has samples of shape \(1, 4, 4\); must be"):
        read(source)


def test_images_that_do_not_fit_in_memory_are_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "NUMBERS_MAX", 30 * 19)
    with pytest.raises(
        UserError, match=r"row 0: .* of 4 x 5 pixels, and 30 such images do not fit in memory"
    ):
        read(saved(tmp_path / "s", train=images()))


SPOILED: dict[str, tuple[str, Any, str]] = {
    "not Arrow": (
        ARROW,
        b"junk" * 9,
        f"{ARROW}: is not an Arrow file as save_to_disk writes it, or is damaged",
    ),
    "a pickle": (ARROW, b"\x80\x04N.", f"{ARROW}: is not an Arrow file"),
    "an empty file": (ARROW, b"", f"{ARROW}: is empty"),
    "no file": (ARROW, None, f"{ARROW}: no such file"),
    "an empty split": (
        ARROW,
        arrow(pa.table({"label": pa.array([], pa.int64())})),
        "s/train: has no rows; must",
    ),
    "a column twice": (
        ARROW,
        arrow(pa.table([pa.array([1]), pa.array([1])], names=["label", "label"])),
        "has the column 'label' twice",
    ),
    "too many rows": (
        ARROW,
        arrow(pa.table({"label": pa.nulls(10**8)})),
        f"{ARROW}: has 100,000,000 rows of 1 columns, too many to read",
    ),
    "a file elsewhere": (
        "state.json",
        b'{"_data_files": [{"filename": "../../secret.arrow"}]}',
        r"state\.json: is not the list of a split's files, or is damaged: _data_files\.0\.filename: String",
    ),
    "no files": ("state.json", b'{"_data_files": []}', r"state\.json: is not the list of a split's files"),
    "no JSON": (
        "dataset_info.json",
        b"{",
        r"dataset_info\.json: is not the column types of a split, or is damaged",
    ),
    "a type of Python": (
        "dataset_info.json",
        b'{"features": {"image": {"_type": "Path"}, "label": {"_type": "Value", "dtype": "int64"}}}',
        "has no column of classes; set data.label to the column",
    ),
    "classes of one name": (
        "dataset_info.json",
        b'{"features": {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": ["a", "a"]}}}',
        "column 'label' must contain whole numbers",
    ),
    "classes without names": (
        "dataset_info.json",
        b'{"features": {"image": {"_type": "Image", "mode": ["RGB"]}, "label": {"_type": "ClassLabel"}}}',
        "column 'label' must contain whole numbers",
    ),
}


@pytest.mark.parametrize("spoiled", SPOILED)
def test_spoiled_files_are_refused(tmp_path: Path, spoiled: str) -> None:
    name, content, message = SPOILED[spoiled]
    source = saved(tmp_path / "s", train=images())
    file = tmp_path / "s" / "train" / name
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError, match=message):
        read(source)


def test_offsets_that_lead_outside_are_refused(tmp_path: Path) -> None:
    """Arrow reads a file without looking at them; whoever follows them reads elsewhere."""
    source = saved(tmp_path / "s", train=images(note=["ab"] * 30))
    file = tmp_path / "s" / "train" / ARROW
    content = file.read_bytes()
    offsets = np.arange(0, 62, 2, dtype=np.int32).tobytes()
    assert content.count(offsets) == 1
    file.write_bytes(content.replace(offsets, offsets[:-8] + np.array([10**6, 60], np.int32).tobytes()))
    with pytest.raises(UserError, match=r"or is damaged: Column 2: In chunk 0: Invalid"):
        read(source)


def test_pipes_and_what_is_too_large_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = saved(tmp_path / "s", train=images())
    state = {"_data_files": [{"filename": ARROW}] * 3}
    (tmp_path / "s" / "train" / "state.json").write_text(json.dumps(state))
    monkeypatch.setattr(input_file, "LIMIT_BYTES", 8000)
    with pytest.raises(UserError, match=r"s/train: its files exceed 0 MiB in total; save fewer rows"):
        read(source)
    file = tmp_path / "s" / "train" / ARROW
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(UserError, match=r"must be a regular file"):
        read(source)


def test_files_of_one_split_are_put_together(tmp_path: Path) -> None:
    source = saved(tmp_path / "s", train=images(GREY[:15]))
    folder = tmp_path / "s" / "train"
    both = {"_data_files": [{"filename": ARROW}, {"filename": "more.arrow"}]}
    (folder / "state.json").write_text(json.dumps(both))
    (folder / "more.arrow").write_bytes(arrow(pa.table(images(GREY[15:]))))
    data = read(source, test_share=0.01)
    assert len(data.train_x) + len(data.test_x) == 30
    (folder / "more.arrow").write_bytes(arrow(pa.table({"other": [1]})))
    with pytest.raises(UserError, match=r"more\.arrow: has columns that differ from data-00000"):
        read(source)


def test_folders_that_are_none_and_names_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"has no dataset_dict\.json or state\.json, so save_to_disk did not write"
    ):
        read(str(tmp_path))
    with pytest.raises(UserError, match=r"/nowhere: has no dataset_dict.json"):
        read(str(tmp_path / "nowhere"))
    with pytest.raises(
        UserError, match=r'no such folder in the .* has the form "owner/name", such as "ylecun/mnist"'
    ):
        read("my data/mnist")
    with pytest.raises(UserError, match=r"data\.label: is required for data\.task"):
        load(tmp_path, 'name = "huggingface"\nsource = "a/b"\npartition = "iid"\ntask = "regression"')
    with pytest.raises(UserError, match=r"data\.test_split = \"train\": must be different from data\.split"):
        load(tmp_path, 'name = "huggingface"\nsource = "a/b"\npartition = "iid"\ntest_split = "train"')


def test_results_are_of_the_folders_content(tmp_path: Path) -> None:
    keys = 'name = "huggingface"\nsource = "s"\npartition = "iid"'
    saved(tmp_path / "s", train=images())
    before = digest(load(tmp_path, keys))
    (tmp_path / "elsewhere").mkdir()
    saved(tmp_path / "elsewhere" / "s", train=images())
    assert digest(load(tmp_path / "elsewhere", keys)) == before
    saved(tmp_path / "s", train=images(GREY[::-1]))
    assert digest(load_scenario(tmp_path / "world.toml")) != before


# The Hub ------------------------------------------------------------------------------------------------


def hub(folder: Path, source: str = "ylecun/mnist", *, download: bool = True, **keys: Any) -> Dataset:
    """The data set of a name of the Hub, with this data folder."""
    from sim.learning.data.kinds import DATASETS

    contents = {"name": "huggingface", "source": source, "partition": "iid", **keys}
    return DATASETS["huggingface"].model_validate(contents).load(3, 1, DataFolder(folder, download))


def test_a_check_downloads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.learning.data.hub.download", lambda *given: pytest.fail("it downloads"))
    load(tmp_path, 'name = "huggingface"\nsource = "ylecun/mnist"\npartition = "iid"')
    result = CliRunner().invoke(app, ["check", str(tmp_path / "world.toml"), "--data-dir", str(tmp_path)])
    assert result.exit_code == 2
    assert 'data.source = "ylecun/mnist": no such folder in the' in result.output
    assert "this command does not download (coterie run downloads it from the Hub)" in result.output


def test_a_download_is_kept_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def download(source: str, subset: str | None, revision: str | None, into: Path) -> None:
        asked.append((source, subset, revision))
        into.parent.mkdir(parents=True, exist_ok=True)
        saved(into, train=images())

    monkeypatch.setattr("sim.learning.data.hub.download", download)
    for _ in range(2):
        assert hub(tmp_path).input_shape == (1, 5, 4)
        hub(tmp_path, revision="refs/pr/1")
    assert hub(tmp_path, download=False).outputs == 4
    assert asked == [("ylecun/mnist", None, None), ("ylecun/mnist", None, "refs/pr/1")]
    names = sorted(each.name for each in (tmp_path / "huggingface").iterdir())
    assert names == ["ylecun--mnist", "ylecun--mnist@@refs%2Fpr%2F1"]


def test_a_download_that_fails_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(*given: Any) -> None:
        raise ConnectionError("Couldn't reach 'ylecun/mnist' on the Hub")

    monkeypatch.setattr("sim.learning.data.hub.download", download)
    message = (
        r"could not be downloaded from the Hub: ConnectionError: Couldn't reach 'ylecun/mnist' on the Hub\n.*"
        r"datasets\.load_dataset\('ylecun/mnist', 'plain'\)\.save_to_disk\(folder\) saves it; copy .*"
        r"huggingface/ylecun--mnist@plain, or name another data folder with --data-dir or COTERIE_DATA"
    )
    with pytest.raises(UserError, match=message):
        hub(tmp_path, subset="plain")


def test_without_the_packages_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.errors.find_spec", lambda name: None)
    needs = r"needs the package {}; run pip install 'coterie\[huggingface\]'"
    with pytest.raises(UserError, match=needs.format("datasets")):
        hub(tmp_path)
    with pytest.raises(UserError, match=needs.format("PIL")):
        read(saved(tmp_path / "s", train=images()))


# With the package datasets itself -----------------------------------------------------------------------


@pytest.fixture
def datasets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    found = pytest.importorskip(
        "datasets", reason="the package datasets is not installed (extra huggingface)"
    )
    found.disable_progress_bars()
    monkeypatch.setattr(found.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return found


def made(datasets: Any) -> Any:
    """A data set of the package, of the images of `images`."""
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=CLASSES["names"])}
    )
    columns = {"image": [Image.fromarray(each) for each in GREY], "label": images()["label"].tolist()}
    return datasets.Dataset.from_dict(columns, features=features)


def test_what_datasets_saves_is_read(tmp_path: Path, datasets: Any) -> None:
    ours = read(saved(tmp_path / "ours", train=images(), test=images()))
    both = datasets.DatasetDict({"train": made(datasets), "test": made(datasets)})
    both.save_to_disk(tmp_path / "theirs", num_shards={"train": 3, "test": 1})
    theirs = read(str(tmp_path / "theirs"))
    for name in ("train_x", "train_y", "test_x", "test_y"):
        assert np.array_equal(getattr(ours, name), getattr(theirs, name))
    assert ours.outputs == theirs.outputs and ours.scaling == theirs.scaling
    single = both["train"].shuffle(seed=1).select(range(20)).cast_column("image", datasets.Image(mode="RGB"))
    single.save_to_disk(tmp_path / "single")
    data = read(str(tmp_path / "single"))
    assert data.input_shape == (3, 5, 4) and len(data.train_x) + len(data.test_x) == 20


def test_the_remedy_for_images_of_different_shapes_is_one(tmp_path: Path, datasets: Any) -> None:
    mixed = datasets.Dataset.from_dict(
        {"image": [Image.fromarray(GREY[n, : 3 + n % 2]) for n in range(30)], "label": [0, 1] * 15}
    )
    mixed.save_to_disk(tmp_path / "mixed")
    with pytest.raises(UserError) as caught:
        read(str(tmp_path / "mixed"), label="label")
    remedy = str(caught.value).partition("all must be equal: ")[2].partition(" makes them equal")[0]
    eval(remedy, {"data": mixed}).save_to_disk(tmp_path / "alike")
    assert read(str(tmp_path / "alike"), label="label").input_shape == (3, 32, 32)


def test_the_package_downloads(tmp_path: Path, datasets: Any) -> None:
    """From a folder in the place of the Hub, which is read in the same way."""
    from sim.learning.data.hub import download

    theirs, into = tmp_path / "repository", tmp_path / "data" / "huggingface" / "theirs"
    theirs.mkdir()
    made(datasets).to_parquet(theirs / "train-00000-of-00001.parquet")
    download(str(theirs), None, None, into)
    data = read(str(into))
    assert data.input_shape == (1, 5, 4) and data.outputs == 4
    assert [each.name for each in into.parent.iterdir()] == ["theirs"]  # nothing else is left
    download(str(theirs), None, None, into)  # as two runs at once do
    (theirs / "train-00000-of-00001.parquet").rename(theirs / "a.tar")
    with pytest.raises(UserError, match=r"its format is webdataset; must be one of arrow, csv, imagefolder"):
        download(str(theirs), None, None, tmp_path / "data" / "other")
    (theirs / "repository.py").write_text("raise SystemExit('executed')")
    (theirs / "a.tar").unlink()
    with pytest.raises(Exception, match=r"no longer supported|data files|Couldn't find"):
        download(str(theirs), None, None, tmp_path / "data" / "other")
