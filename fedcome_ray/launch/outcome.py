"""What happened to the trials that a launch had to run."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from fedcome_ray import metrics
from fedcome_ray.console.exits import FAILED, OK


@dataclass
class Outcome:
    """What happened to the trials that a launch had to run."""

    num_pending: int
    finished: set[str] = field(default_factory=set)  # trial keys
    failures: dict[str, str] = field(default_factory=dict)  # trial key -> why
    stopped: set[str] = field(default_factory=set)  # trial keys: early, for others did better
    phases: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds of all rounds by phase."""
    outside: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds that trials spent outside of their rounds, by what they did."""
    complaint: str | None = None  # of the store, whose mirror is behind
    slot_seconds: float = 0.0  # wall time of the grid times the trials that ran at once

    @staticmethod
    def of_all(outcomes: "Sequence[Outcome]") -> "Outcome":
        """What happened to the trials of several launches, one after the other."""
        whole = Outcome(sum(one.num_pending for one in outcomes))
        for one in outcomes:
            whole.finished |= one.finished
            whole.failures |= one.failures
            whole.stopped |= one.stopped
            for name, seconds in one.phases.items():
                whole.phases[name] += seconds
            for name, seconds in one.outside.items():
                whole.outside[name] += seconds
            whole.complaint = one.complaint or whole.complaint
            whole.slot_seconds += one.slot_seconds
        return whole

    @property
    def ended(self) -> set[str]:
        """The trials that are over, one way or the other."""
        return self.finished | self.stopped | set(self.failures)

    @property
    def exit_code(self) -> int:
        return FAILED if self.failures or self.is_interrupted else OK

    @property
    def is_interrupted(self) -> bool:
        return len(self.ended) < self.num_pending

    @property
    def overhead(self) -> float:
        """Seconds that a trial spent outside of its rounds, on average."""
        return (self.slot_seconds - self.phases[metrics.SECONDS_ROUND]) / max(1, len(self.finished))
