"""Hypothesis draws new examples at every run at one's desk, and the same ones in continuous integration."""

import os

from hypothesis import settings

# No deadlines: how long an example takes hangs on how busy the machine is.
settings.register_profile("desk", deadline=None)
settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "desk")
