"""What is drawn of each grid and claimed about it: a record each.

A figure, a table or a claim more is an entry here. Grids that are not named, such as a user's, get
the usual figures and a table of accuracies.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from . import claims, figures, tables, wins
from .claims import Claim, Finding
from .figures import Plot
from .study import Study
from .tables import Table, TextTable


def usual_figures(*own: Plot) -> tuple[Plot, ...]:
    """What can be drawn of every grid, with a grid's own among them."""
    return (
        figures.CONVERGENCE,
        figures.ROUNDS_TO_TARGET,
        *own,
        figures.CONFLICTS,
        figures.OPPOSED,
        figures.SIMILARITY,
        figures.TIME,
    )


class Contents(NamedTuple):
    """What is drawn of a grid and claimed about it."""

    claims: tuple[Claim, ...] = ()
    figures: tuple[Plot, ...] = usual_figures()
    tables: tuple[Callable[[Study, str], Table | TextTable | None], ...] = (
        tables.accuracy_table,
        wins.wins_of,
    )
    """Given a study and what to compare, a key of `scores.ACCURACY`."""


CONTENTS = {
    "full_participation": Contents(
        claims=(
            Claim(
                "best-full",
                "FedCOME has the best accuracy on MNIST, CIFAR-10 and CIFAR-100 with full "
                "participation.",
                claims.best_method("fedcome", "data.dataset", "mnist", "cifar10", "cifar100"),
            ),
            Claim(
                "femnist-feddc",
                "On FEMNIST, FedDC is ahead of all, FedCOME included.",
                claims.best_method("feddc", "data.dataset", "femnist"),
            ),
            Claim(
                "sooner",
                "FedCOME needs fewer rounds than FedAvg to the accuracy that FedAvg ends with.",
                claims.sooner,
            ),
            Claim(
                "no-conflict-left",
                "After the consensus no two updates of a cohort are in conflict.",
                claims.no_conflict_left,
                about_every_run=True,
            ),
        ),
    ),
    "heterogeneity": Contents(
        claims=(
            Claim(
                "best-heterogeneous",
                "FedCOME is best with 2 and with 3 classes per client.",
                claims.best_method("fedcome", "data.partition.classes", 2, 3),
            ),
            Claim(
                "feddyn-4-classes",
                "With 4 classes per client, FedDyn is best.",
                claims.best_method("feddyn", "data.partition.classes", 4),
            ),
        ),
    ),
    "partial_participation": Contents(
        claims=(
            Claim(
                "sampler-gain",
                "The similarity sampler improves every method at every share of participation.",
                claims.sampler_gain,
            ),
            Claim(
                "sampler-gain-shrinks",
                "FedCOME gains most from the sampler when few clients take part.",
                claims.gain_shrinks,
            ),
            Claim(
                "best-partial",
                "FedCOME with the sampler is best at every share of participation.",
                claims.best_method(
                    "fedcome", "participation", *claims.SHARES, sampler="similarity"
                ),
            ),
        ),
    ),
    "sensitivity": Contents(
        claims=(
            Claim(
                "stable",
                "FedCOME is stable for α and μ of 0.5, 0.7 and 0.9: these cells of the table "
                "differ no more than in the paper.",
                claims.stable,
                about_every_run=True,
            ),
        ),
        figures=usual_figures(figures.SENSITIVITY),
    ),
    "client_loss": Contents(
        claims=(
            Claim(
                "loss-ends-lower",
                "With full participation every client's loss ends lower than it began.",
                claims.falls(at_every_step=False),
                about_every_run=True,
            ),
            Claim(
                "loss-never-rises",
                "With full participation no client's loss rises in any round.",
                claims.falls(at_every_step=True),
                about_every_run=True,
            ),
            Claim(
                "sampler-smooths",
                "With 20 % of the clients, the sampler lets fewer losses rise than random cohorts.",
                claims.smoother_with_sampler,
            ),
        ),
        figures=usual_figures(figures.CLIENT_LOSS),
    ),
    "fairness": Contents(
        claims=(
            Claim(
                "sharper",
                "Client accuracies differ less under FedCOME than under FedFV.",
                claims.sharper,
            ),
        ),
        figures=usual_figures(figures.SORTED_ACCURACY, figures.CLIENT_ACCURACY),
        tables=(tables.accuracy_table, tables.fairness_table),
    ),
    "controls": Contents(
        claims=(
            Claim(
                "not-only-longer",
                "Control: FedCOME is ahead of FedAvg with a longer step, whatever the server rate.",
                claims.beats_longer_steps,
            ),
            Claim(
                "equal-length",
                "Control: FedCOME cut to FedAvg's length is still ahead of FedAvg.",
                claims.beats_at_equal_length,
            ),
        ),
    ),
    "scaling": Contents(tables=(tables.cost_table,)),
}


def contents_of(grid: str) -> Contents:
    return CONTENTS.get(grid, Contents())


def check_claims(studies: Mapping[str, Study]) -> list[Finding]:
    """A finding for every claim, also for those whose grid has not been run."""
    return [
        claims.check(claim, grid, studies.get(grid))
        for grid, contents in CONTENTS.items()
        for claim in contents.claims
    ]
