"""Code that must run in a process of its own: libraries choose their routines only once."""

import json
import os
import subprocess
import sys
from typing import Any

from fedcome_ray.numerics import environment


def answer_of(code: str, **variables: str) -> Any:
    """What the code prints last, as JSON; run without the switches of this process."""
    switches = {*environment.portable_switches(), *environment.STRICT, *environment.GPU}
    inherited = {k: v for k, v in os.environ.items() if k not in switches}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**inherited, **variables},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
