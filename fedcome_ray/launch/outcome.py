"""What happened to the trials that a launch had to run."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from fedcome_ray import metrics
from fedcome_ray.console.exits import BEHIND, FAILED, OK


@dataclass
class Outcome:
    """What happened to the trials that a launch had to run."""

    pending: set[str] = field(default_factory=set)  # trial keys
    finished: set[str] = field(default_factory=set)  # trial keys
    failures: dict[str, str] = field(default_factory=dict)  # trial key -> why
    stopped: set[str] = field(default_factory=set)  # trial keys: early, by a search
    phases: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds of all rounds by phase."""
    outside: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds that trials spent outside of their rounds, by what they did."""
    complaint: str | None = None  # of the store, whose mirror is behind
    slot_seconds: float = 0.0  # wall time of the grid times the trials that could run at once

    @staticmethod
    def of_all(outcomes: "Sequence[Outcome]") -> "Outcome":
        """What happened to the trials of several launches, one after the other."""
        whole = Outcome()
        for one in outcomes:
            whole.pending |= one.pending
            whole.finished |= one.finished
            whole.failures |= one.failures
            whole.stopped |= one.stopped
            for name, seconds in one.phases.items():
                whole.phases[name] += seconds
            for name, seconds in one.outside.items():
                whole.outside[name] += seconds
            whole.complaint = one.complaint or whole.complaint
            whole.slot_seconds += one.slot_seconds
        whole.stopped -= whole.finished  # a search may go on with what it had stopped
        return whole

    @property
    def ended(self) -> set[str]:
        """The trials that are over, one way or the other."""
        return self.finished | self.stopped | set(self.failures)

    def has_ended(self, key: str) -> bool:
        return key in self.finished or key in self.stopped or key in self.failures

    @property
    def exit_code(self) -> int:
        if self.failures or self.is_interrupted:
            return FAILED
        return OK if self.complaint is None else BEHIND

    @property
    def is_interrupted(self) -> bool:
        return bool(self.pending - self.ended)

    @property
    def overhead(self) -> float:
        """Seconds that a trial spent outside of its rounds, on average."""
        return (self.slot_seconds - self.phases[metrics.SECONDS_ROUND]) / max(1, len(self.finished))
