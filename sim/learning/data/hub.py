"""Downloads from the Hugging Face Hub, all that the project takes from the package datasets."""

import os
import tempfile
from pathlib import Path

from sim.errors import UserError, require_packages
from sim.files.input_file import LIMIT_BYTES

_FORMATS = ("arrow", "csv", "imagefolder", "json", "parquet", "text")
"""The readers of the package that may read a data set: none of them executes what is in it."""


def download(source: str, subset: str | None, revision: str | None, into: Path) -> None:
    """Make the folder `into`, as `save_to_disk` does, of all splits of a data set of the Hub.

    Raises UserError, and whatever the package raises when network, folder or data set do not let it.
    """
    require_packages("huggingface", f'downloading "{source}"', "datasets")
    import datasets

    into.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into.parent, prefix=".", ignore_cleanup_errors=True) as place:
        builder = datasets.load_dataset_builder(source, subset, revision=revision, cache_dir=place)
        reader = type(builder).__module__.rpartition(".")[2]
        if reader not in _FORMATS:
            raise UserError(f"is read by {reader}; must be a data set of {', '.join(_FORMATS)}")
        splits = builder.info.splits or {}
        if large := [name for name, split in splits.items() if (split.num_bytes or 0) > LIMIT_BYTES]:
            raise UserError(f"its split {large[0]} has more than {LIMIT_BYTES // 2**20} MiB; must have less")
        builder.download_and_prepare()
        builder.as_dataset().save_to_disk(os.path.join(place, "saved"))
        try:
            os.rename(os.path.join(place, "saved"), into)
        except OSError:
            if not into.is_dir():  # another run was faster
                raise
