"""Ray: the connection, placement, shards behind actors, the trial's actor.

The only room, with `launch/tune_run.py`, that knows Ray. It carries trials and federations, and
knows nothing of MLflow or of what a launch shows.
"""

import os

MOST_WITH_A_CALL = 2**20
"""Bytes that go with a call itself: the object store takes longer to keep and to forget them."""

# Before Ray is imported: our own display replaces Tune's, our own files its loggers. What the user
# has set stays.
_SWITCHES = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    # In a job: what this process sends to others goes before what the job sends them.
    "RAY_OVERRIDE_JOB_RUNTIME_ENV": "1",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_max_direct_call_object_size": str(MOST_WITH_A_CALL),
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}
os.environ.update({**_SWITCHES, **os.environ})
