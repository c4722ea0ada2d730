"""Downloads from the Hugging Face Hub: the only use of the package `datasets`."""

import os
import tempfile
from pathlib import Path

from sim.errors import UserError, require_packages
from sim.files.input_file import LIMIT_BYTES

_FORMATS = ("arrow", "csv", "imagefolder", "json", "parquet", "text")
"""Readers of the package that are allowed: none of them executes code in a data set."""


def download(source: str, subset: str | None, revision: str | None, into: Path) -> None:
    """Download all splits of a data set into the new folder `into`, in the format of `save_to_disk`.

    Raises UserError, and any error of the package about the network, the folder or the data set.
    """
    require_packages("huggingface", f'downloading "{source}"', "datasets")
    import datasets

    into.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into.parent, prefix=".", ignore_cleanup_errors=True) as temporary:
        builder = datasets.load_dataset_builder(source, subset, revision=revision, cache_dir=temporary)
        reader = type(builder).__module__.rpartition(".")[2]
        if reader not in _FORMATS:
            raise UserError(f"its format is {reader}; must be one of {', '.join(_FORMATS)}")
        splits = builder.info.splits or {}
        if large := [name for name, split in splits.items() if (split.num_bytes or 0) > LIMIT_BYTES]:
            raise UserError(
                f"split {large[0]} exceeds {LIMIT_BYTES // 2**20} MiB, and all splits are downloaded; "
                "use a data set with smaller splits"
            )
        builder.download_and_prepare()
        builder.as_dataset().save_to_disk(os.path.join(temporary, "saved"))
        try:
            os.rename(os.path.join(temporary, "saved"), into)
        except OSError:
            if not into.is_dir():  # another run was faster
                raise
