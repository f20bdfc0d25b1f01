"""What a process that Ray starts for shards imports."""

import gc

from fedcome_ray.importing import large_modules

with large_modules():
    import fedcome_ray.runtime.shards  # noqa: F401

gc.freeze()  # nor look among it later: the process is ours, and keeps it to its end
