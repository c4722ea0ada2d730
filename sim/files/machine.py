"""What the machine has to compute with."""

import os
import resource
from pathlib import Path

_CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


_SHARE = 0.75  # the rest is for what else a run has


def room_bytes() -> float:
    """The memory that the contents of files may take."""
    return _SHARE * memory_bytes()


def memory_bytes() -> int:
    """The memory that this process can have at most: the machine's, or less under a limit.

    Limits are those of a container, and of `ulimit`.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in _CONTAINER_LIMITS:
        try:
            limits.append(int(Path(file).read_text(encoding="ascii")))
        except (OSError, ValueError):  # no such limit here, or "max"
            continue
    own = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    return min([*limits, *(limit for limit in own if limit != resource.RLIM_INFINITY)])
