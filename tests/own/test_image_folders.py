"""A folder of images for each class: read as torchvision's ImageFolder reads it, or refused."""

import io
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from sim.cli.studies import app
from sim.errors import UserError
from sim.files import input_file, picture_folder
from sim.files.data_folder import DataFolder
from sim.learning import vision
from sim.learning.data import pictures
from sim.learning.data.dataset import Dataset
from sim.learning.data.images import ImageArrays
from sim.learning.data.kinds import DATASETS
from sim.scenario.resolved import digest
from tests.learning.sections import read_images
from tests.own.data_worlds import TEXT, built, load, owned
from tests.own.test_huggingface import unscaled
from tests.own.test_tables import section
from tests.simulation.worlds import write

RNG = np.random.default_rng(5)
CLASSES = ("10", "9", "Cat", "dog")  # in order
CINIC_10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def encoded(pixels: np.ndarray, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


def picture(height: int = 6, width: int = 5, channels: int = 3) -> np.ndarray:
    shape = (height, width, channels)[: 2 + (channels > 1)]
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def put(path: Path, content: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content or encoded(picture()))
    return path


def filled(folder: Path, each: int = 5) -> Path:
    """A folder with so many pictures of each class, written in no order, of several formats and sizes."""
    places = [(label, number) for label in CLASSES for number in range(each)]
    random.Random(each).shuffle(places)
    for label, number in places:
        kind, suffix = (("PNG", "png"), ("JPEG", "JPG"), ("WEBP", "webp"), ("BMP", "bmp"))[number % 4]
        channels = 1 if number == 4 else 3
        put(folder / label / f"{number}.{suffix}", encoded(picture(6 + number, 9, channels), kind))
    return folder


def alike(folder: Path, each: int = 5) -> Path:
    """The same, of one size."""
    for label in CLASSES:
        for number in range(each):
            put(folder / label / f"{number}.png")
    return folder


def read(source: Path, **keys: Any) -> Dataset:
    return section({"name": "images", "source": str(source), "partition": "iid", **keys})


def theirs(folder: Path, size: int, mode: str = "RGB") -> tuple[np.ndarray, np.ndarray]:
    """Pixels [n, channels, size, size] and labels by torchvision."""
    torchvision = vision.import_torchvision()
    resize = torchvision.transforms.Resize((size, size))
    found = torchvision.datasets.ImageFolder(
        str(folder), lambda image: np.atleast_3d(np.asarray(resize(image.convert(mode)))).transpose(2, 0, 1)
    )
    x, y = zip(*found, strict=True)
    return np.stack(x), np.array(y)


# What is read ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [4, 9, 20])
def test_pixels_and_labels_are_torchvisions(tmp_path: Path, size: int) -> None:
    filled(tmp_path / "train"), filled(tmp_path / "test", 3), filled(tmp_path / "val", 1)
    data = read(tmp_path, size=size)
    (train_x, val_x), (train_y, val_y) = (np.split(part, [20]) for part in (data.train_x, data.train_y))
    for x, y, part in (
        (train_x, train_y, "train"),
        (data.test_x, data.test_y, "test"),
        (val_x, val_y, "val"),
    ):
        pixels, labels = theirs(tmp_path / part, size)
        assert np.array_equal(unscaled(data, x), pixels) and np.array_equal(y, labels)
    assert (
        data.validation_count == len(val_y) == 4
        and data.outputs == 4
        and data.features == f"images of 3 x {size} x {size} numbers; 4 classes: " + ("10, 9, Cat, dog")
    )
    assert np.abs(train_x.mean(axis=(0, 2, 3))).max() < 1e-5
    assert np.abs(train_x.std(axis=(0, 2, 3)) - 1).max() < 1e-5


def test_grey_pictures_of_one_size(tmp_path: Path) -> None:
    alike(tmp_path / "train"), alike(tmp_path / "validation", 2)
    data = read(tmp_path, grey=True)
    assert data.input_shape == (1, 6, 5)
    train, _, files = data.train_x, data.train_y, sorted((tmp_path / "train" / "Cat").iterdir())
    assert np.array_equal(unscaled(data, train)[12, 0], np.asarray(Image.open(files[2]).convert("L")))
    assert len(data.test_y) == 8


def test_a_share_of_each_class_is_tested_on_the_same_with_all_seeds(tmp_path: Path) -> None:
    alike(tmp_path / "s")
    found = [
        DATASETS["images"]
        .model_validate(
            {"name": "images", "source": str(tmp_path / "s"), "partition": "iid", "test_share": 0.4}
        )
        .load(1, seed, DataFolder())
        for seed in (1, 2)
    ]
    assert np.bincount(found[0].test_y).tolist() == [2] * 4 and len(found[0].train_y) == 12
    assert np.array_equal(found[0].test_x, found[1].test_x)


def test_the_order_on_the_disk_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path / "s")
    first, scan = read(tmp_path / "s", size=8), os.scandir

    def backwards(path: Path) -> list[os.DirEntry[str]]:
        return sorted(scan(path), key=lambda entry: entry.name, reverse=True)

    monkeypatch.setattr(picture_folder.os, "scandir", backwards)
    again = read(tmp_path / "s", size=8)
    for name in ("train_x", "train_y", "test_x", "test_y"):
        assert np.array_equal(getattr(first, name), getattr(again, name))


def test_hidden_files_and_files_beside_the_classes_do_no_harm(tmp_path: Path) -> None:
    alike(tmp_path / "s")
    first = read(tmp_path / "s")
    for name in ("Cat/.DS_Store", "Cat/Thumbs.db", "dog/._1.png", "README.md", "ImageInfo.csv", ".git/HEAD"):
        put(tmp_path / "s" / name, b"x")
    assert np.array_equal(read(tmp_path / "s").train_x, first.train_x)


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    put(tmp_path / "s/train/1.png"), put(tmp_path / "s/train/2.png")
    put(tmp_path / "s/car/1.png"), put(tmp_path / "s/car/2.png")
    assert read(tmp_path / "s").features.endswith("2 classes: car, train")


def test_names_with_odd_characters(tmp_path: Path) -> None:
    names = ["a b", "ca'fé", "new\nline", "[red]", "日本", os.fsdecode(b"\xff\xfe")]
    for name in names:
        put(tmp_path / "s" / name / "1 \n.png"), put(tmp_path / "s" / name / "2'\".PNG")
    data = read(tmp_path / "s")
    assert data.outputs == 6 and "\n" not in data.features
    data.features.encode()
    scenario = write(tmp_path, TEXT.replace("DATA", 'name = "images"\nsource = "s"\npartition = "iid"'))
    assert CliRunner().invoke(app, ["check", str(scenario)]).exit_code == 0
    put(tmp_path / "s" / names[-1] / "3.txt", b"x")
    result = CliRunner().invoke(app, ["check", str(scenario)])
    assert result.exit_code == 2 and "3.txt: does not have a picture's name" in result.output


def test_links_are_followed(tmp_path: Path) -> None:
    alike(tmp_path / "elsewhere")
    (tmp_path / "s").mkdir()
    for label in CLASSES[:3]:
        (tmp_path / "s" / label).symlink_to(tmp_path / "elsewhere" / label)
    (tmp_path / "s/dog").mkdir()
    for file in (tmp_path / "elsewhere/dog").iterdir():
        (tmp_path / "s/dog" / file.name).symlink_to(file)
    assert np.array_equal(read(tmp_path / "s").train_x, read(tmp_path / "elsewhere").train_x)


def test_pictures_are_turned_as_their_camera_says(tmp_path: Path) -> None:
    alike(tmp_path / "s")
    turned, pixels = Image.Exif(), picture(5, 6)
    turned[0x0112] = 6
    put(tmp_path / "t/train/Cat/1.png", encoded(pixels, exif=turned)), put(tmp_path / "t/train/dog/1.png")
    put(tmp_path / "t/test/dog/1.png")
    data = read(tmp_path / "t")
    assert np.array_equal(unscaled(data, data.train_x)[0].transpose(1, 2, 0), np.rot90(pixels, -1))


def test_transparency_and_later_frames_are_left_out(tmp_path: Path) -> None:
    colours, later, alpha = picture(6, 5), Image.fromarray(picture(6, 5)), np.full((6, 5, 1), 9, np.uint8)
    alike(tmp_path / "t/train"), put(tmp_path / "t/test/Cat/1.png", encoded(np.dstack([colours, alpha])))
    frames = io.BytesIO()
    Image.fromarray(colours).save(frames, "TIFF", save_all=True, append_images=[later])
    put(tmp_path / "t/test/Cat/2.tiff", frames.getvalue())
    data = read(tmp_path / "t")
    assert np.array_equal(unscaled(data, data.test_x).transpose(0, 2, 3, 1), [colours, colours])


def test_clients_have_folders(tmp_path: Path) -> None:
    for place, domain in enumerate(("Art", "Clipart", "Real World")):
        alike(tmp_path / "s" / domain, 5 + place)
    keys = 'name = "images"\nsource = "s"\nclient_folders = true\npartition = "natural"'
    simulation = built(tmp_path, keys)
    assert [len(x) for x, _ in owned(simulation, "train")] == [16, 19, 22]
    assert [len(x) for x, _ in owned(simulation, "test")] == [4, 5, 6]
    data = read(tmp_path / "s", client_folders=True)
    assert data.owners is not None and data.owners.names == ("Art", "Clipart", "Real World")
    assert data.outputs == 4


def test_a_scenario_is_checked_and_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    filled(tmp_path / "s", 12)
    scenario = write(
        tmp_path,
        TEXT.replace("DATA", 'name = "images"\nsource = "s"\nsize = 8\npartition = "iid"').replace(
            "[protocol]", "[training.augmentation]\nflip = 0.5\n\n[protocol]"
        ),
    )
    checked = CliRunner().invoke(app, ["check", str(scenario)])
    assert checked.exit_code == 0 and "4 classes: 10, 9, Cat, dog" in checked.output
    result = CliRunner().invoke(app, ["run", str(scenario), "--quiet", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output


def test_results_are_named_by_the_pictures(tmp_path: Path) -> None:
    keys = 'name = "images"\nsource = "s"\npartition = "iid"'
    for place in ("a", "b", "c"):
        for label in "xy":
            for number in range(3):
                content = encoded(np.full((4, 4, 3), 9 + number + (place == "c"), np.uint8))
                put(tmp_path / place / "s" / label / f"{number}.png", content)
    put(tmp_path / "b" / "s" / "README.md", b"hidden files and lists are not read")
    first, same, other = [digest(load(tmp_path / place, keys)) for place in ("a", "b", "c")]
    assert first == same != other


# What is refused ------------------------------------------------------------------------------------------


def gone(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


def only(name: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        gone(folder)
        put(folder / name)

    return spoil


def bomb(folder: Path) -> None:
    """A small file of 400 million pixels."""
    Image.new("1", (20_000, 20_000)).save(folder / "Cat/1.png")


def loop(folder: Path) -> None:
    (folder / "Cat/loop").symlink_to(folder)


def dangling(folder: Path) -> None:
    (folder / "Cat/8.png").symlink_to(folder / "nowhere.png")


def pipe(folder: Path) -> None:
    os.mkfifo(folder / "Cat/8.png")


def with_file(name: str, content: bytes = b"") -> Callable[[Path], None]:
    return lambda folder: put(folder / name, content) and None


CONTENT = encoded(picture(40, 40))
DEEP = encoded(np.arange(30, dtype=np.uint16).reshape(6, 5) * 900)
WRONG: dict[str, tuple[Callable[[Path], None], str]] = {
    "an empty folder": (gone, "s: contains no class folder; must contain one for each class"),
    "one class": (
        only("Cat/1.png"),
        "s: has only the class 'Cat'; must have at least two",
    ),
    "no folder of a class": (
        only("1.png"),
        r"s/1\.png: is outside the class folders; move it into the folder of its class",
    ),
    "a class without pictures": (
        lambda folder: (folder / "empty").mkdir(),
        "s/empty: contains no picture; a class folder must contain at least one",
    ),
    "only hidden files": (with_file("new/.1.png"), "s/new: contains no picture"),
    "junk": (
        with_file("Cat/1.png", b"junk"),
        r"Cat/1\.png: does not contain an intact image \(PNG, .*\)$",
    ),
    "an empty file": (
        lambda folder: (folder / "Cat/1.png").write_bytes(b"") and None,
        r"Cat/1\.png: is empty",
    ),
    "cut off": (
        with_file("Cat/1.png", CONTENT[:-900]),
        r"Cat/1\.png: does not contain an intact image .*truncated",
    ),
    "changed": (
        with_file("Cat/1.png", CONTENT[:200] + bytes(50) + CONTENT[250:]),
        r"Cat/1\.png: does not contain an intact image",
    ),
    "a bomb": (bomb, r"Cat/1\.png: does not contain an intact image.*decompression bomb"),
    "16 bits": (
        with_file("Cat/1.png", DEEP),
        r"Cat/1\.png: contains an image of the mode I;16; must have 8 bits",
    ),
    "a text": (
        with_file("Cat/notes.txt", b"x"),
        r"Cat/notes\.txt: does not have a picture's name; the name must end in \.p",
    ),
    "a folder in a class": (
        with_file("Cat/more/1.png"),
        "Cat/more: is a folder; must be a picture of the class; for CLIENT/CLASS, set data.client_folders",
    ),
    "a loop": (loop, "Cat/loop: is a folder; must be a picture"),
    "a link to nothing": (dangling, r"Cat/8\.png: no such file"),
    "a pipe": (pipe, r"Cat/8\.png: must be a regular file"),
    "another size": (
        with_file("Cat/1.png", CONTENT),
        r"Cat/1\.png: contains an image of 40 x 40 pixels with 3 channels, but the first has 5 x 6 pixels "
        r"with 3 channels; all must be equal: data\.size = 32, for example",
    ),
    "parts without classes": (
        lambda folder: only("train/1.png")(folder) or with_file("test/1.png")(folder),
        "s: has only test, train, and train has no folder of a class; must have train/CLASS, or a folder for",
    ),
    "none for training": (
        lambda folder: only("test/Cat/1.png")(folder) or with_file("val/Cat/1.png")(folder),
        "s: has only test, val, and no folder train",
    ),
    "another part": (
        with_file("train/Cat/1.png"),
        r"s/10: is next to train; must be one of test, val, valid, validation",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("how", WRONG)
def test_refused(tmp_path: Path, how: str) -> None:
    spoil, problem = WRONG[how]
    spoil(alike(tmp_path / "s"))
    with pytest.raises(UserError, match=rf"data\.source: .*{problem}"):
        read(tmp_path / "s")


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        (
            "test/cow/1.png",
            r"test/cow/1\.png: has class 'cow' without training pictures; must be one of 10, 9, C",
        ),
        ("test/1.png", r"test/1\.png: is outside the class folders"),
        ("test/README", "test: contains no class folder"),
        ("more/Cat/1.png", "more: is next to train; must be one of test"),
    ],
)
def test_refused_beside_train(tmp_path: Path, file: str, problem: str) -> None:
    alike(tmp_path / "s/train")
    put(tmp_path / "s" / file)
    with pytest.raises(UserError, match=problem):
        read(tmp_path / "s")


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ('source = "x/none"', 'data.source = "x/none": no such file'),
        ('source = "scenario.toml"', "is not a folder; must be a folder with a folder for each class"),
        ('source = "s"\nsize = 0', "data.size = 0"),
        ('source = "s"\nsize = 5000', "data.size = 5000"),
        ('source = "s"\ntask = "regression"', 'data.task = "regression": unknown key'),
        (
            'source = "s"\nclient_folders = true',
            r"is outside the class folders; move it into the folder of its class",
        ),
        ('source = "s"\npartition = "natural"', "the data set has no owners of samples"),
    ],
)
def test_keys_that_do_not_fit(tmp_path: Path, keys: str, problem: str) -> None:
    alike(tmp_path / "s")
    shares = "" if "partition" in keys else '\npartition = "iid"'
    scenario = write(tmp_path, TEXT.replace("DATA", f'name = "images"\n{keys}{shares}'), "scenario.toml")
    result = CliRunner().invoke(app, ["check", str(scenario)])
    assert result.exit_code == 2 and problem in " ".join(result.output.split()), result.output


def test_more_than_fits_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alike(tmp_path / "s")
    monkeypatch.setattr(pictures, "NUMBERS_MAX", 20 * 8 * 8 * 3 - 1)
    with pytest.raises(UserError, match=r"10/0\.png: .* 8 x 8 pixels, and 20 such images do not fit"):
        read(tmp_path / "s", size=8)
    assert len(read(tmp_path / "s").train_y) == 16
    monkeypatch.setattr(input_file, "LIMIT_BYTES", 50)
    with pytest.raises(UserError, match=r"10/0\.png: exceeds"):
        read(tmp_path / "s")


def test_pillow_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.errors.find_spec", lambda name: None)
    with pytest.raises(
        UserError, match=r"images\" needs the package PIL; run pip install 'coterie\[vision\]'"
    ):
        read(alike(tmp_path / "s"))


# CINIC-10 -------------------------------------------------------------------------------------------------


def cinic(folder: Path, size: int = 32) -> Path:
    for part, count in (("train", 3), ("valid", 1), ("test", 2)):
        for label in CINIC_10:
            for number in range(count):
                put(folder / part / label / f"cifar10-{part}-{number}.png", encoded(picture(size, size)))
    put(folder / "README.md", b"x")
    return folder


def of_cinic(folder: Path) -> ImageArrays:
    return read_images("cinic-10", folder)


@pytest.mark.parametrize("below", ["cinic-10", "CINIC-10"])
def test_cinic_10(tmp_path: Path, below: str) -> None:
    cinic(tmp_path / below)
    arrays = of_cinic(tmp_path)
    for x, y, part in ((arrays.train_x, arrays.train_y, "train"), (arrays.test_x, arrays.test_y, "test")):
        pixels, labels = theirs(tmp_path / below / part, 32)
        assert np.array_equal(x, pixels) and np.array_equal(y, labels)
    assert len(arrays.train_y) == 30


def test_cinic_10_that_is_another_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cinic-10: train, test\n.*CINIC-10: train, test"):
        of_cinic(tmp_path)
    folder = cinic(tmp_path / "cinic-10", 28)
    with pytest.raises(UserError, match=r"train: images have .* \(30, 3, 28, 28\); must be .* 3, 32, 32\)"):
        of_cinic(tmp_path)
    gone(folder)
    cinic(folder)
    (folder / "test/truck").rename(folder / "test/lorry")
    with pytest.raises(UserError, match="'lorry' without training pictures"):
        of_cinic(tmp_path)
    (folder / "train/truck").rename(folder / "train/lorry")
    with pytest.raises(
        UserError, match=r"cinic-10/train: has the classes airplane.*lorry.*; must have airplane"
    ):
        of_cinic(tmp_path)
