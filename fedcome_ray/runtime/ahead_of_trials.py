"""What a process that Ray starts ahead for trials imports."""

import gc

from fedcome_ray.importing import large_modules

with large_modules():
    import fedcome_ray.runtime.trial_actor  # noqa: F401

gc.freeze()  # nor look among it later: the process is ours, and keeps it to its end
