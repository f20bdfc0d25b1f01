"""What a trial under way tells whoever follows it."""

from dataclasses import dataclass, field

from fedcome_ray.federation.round import Round


@dataclass(frozen=True, repr=False)  # Tune writes it out for a log that nobody reads
class News:
    """Told from time to time, and at the end."""

    rounds: list[Round] = field(default_factory=list)  # without cohorts: they stay in the folder
    num_restored: int = 0  # rounds of earlier launches
    is_finished: bool = False
    is_paused: bool = False  # where its launch ends, with a checkpoint
    failure: str | None = None
    incidents: list[str] = field(default_factory=list)  # that it has survived
    seconds: dict[str, float] = field(default_factory=dict)
    """Spent outside of rounds since the last news, by what was done."""

    @property
    def is_over(self) -> bool:
        """Whether no more will be told of the trial by this launch."""
        return self.is_finished or self.is_paused or self.failure is not None
