"""The device on which the tests of engine, methods and fidelity compute, as the environment says."""

import os

DEVICE = os.environ.get("COTERIE_DEVICE", "cpu")
