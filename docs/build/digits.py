"""Generator of the file of digits in coterie: ``python -m docs.build.digits``."""

import hashlib

import numpy as np
from sklearn.datasets import load_digits

from sim.learning.data.digits import FILE


def main() -> None:
    """Write the file, and print its hash for the check at run time."""
    found = load_digits()
    np.savez_compressed(FILE, images=found.data.astype(np.uint8), labels=found.target.astype(np.uint8))
    print(hashlib.sha256(FILE.read_bytes()).hexdigest())


if __name__ == "__main__":
    main()
