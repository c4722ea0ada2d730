"""Memory of this machine and process."""

import os
import resource
from pathlib import Path

_CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


_SHARE = 0.75  # share of the memory for contents of files


def room_bytes() -> float:
    """Return the memory that contents of files may take, in bytes."""
    return _SHARE * memory_bytes()


def memory_bytes() -> int:
    """Return the memory that this process can use, in bytes: the machine's, or a lower limit.

    Limits are set by containers and by `ulimit`.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in _CONTAINER_LIMITS:
        try:
            limits.append(int(Path(file).read_text(encoding="ascii")))
        except (OSError, ValueError):  # no limit, or "max"
            continue
    own = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    return min([*limits, *(limit for limit in own if limit != resource.RLIM_INFINITY)])
