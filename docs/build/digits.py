"""The file of the digits that come with coterie, by ``python -m docs.build.digits``."""

import hashlib

import numpy as np
from sklearn.datasets import load_digits

from sim.learning.data.digits import FILE


def main() -> None:
    """Write the file, and print the hash by which it is checked."""
    found = load_digits()
    np.savez_compressed(FILE, images=found.data.astype(np.uint8), labels=found.target.astype(np.uint8))
    print(hashlib.sha256(FILE.read_bytes()).hexdigest())


if __name__ == "__main__":
    main()
