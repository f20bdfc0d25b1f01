"""What is drawn of each grid and claimed about it: a record each.

A figure, a table or a claim more is an entry here. Grids that are not named, such as a user's, get
the usual figures and a table of accuracies.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from fedcome_ray.methods import PAPER

from . import claims, figures, tables, verdicts, wins
from .figures import Plot
from .study import Study
from .tables import Table, TextTable
from .verdicts import Claim, Finding


def usual_figures(*own: Plot) -> tuple[Plot, ...]:
    """What can be drawn of every grid, with a grid's own among them."""
    return (
        figures.CONVERGENCE,
        figures.COMMUNICATION,
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


FULL = "experiments, convergence and accuracy; table `convergence-accuracy`"
CONVERGENCE = "experiments, convergence and accuracy; figure of convergence"
HETEROGENEITY = "experiments, data heterogeneity; table `data-heterogeneity`"
PARTIAL = "experiments, partial participation; table `partial-participation`"
SENSITIVITY = "experiments, sensitivity; table `sensitivity-analysis`"
CLIENT_LOSS = "experiments, figures of client loss"
FAIRNESS = "experiments, figure of fairness"
SHARES = (0.1, 0.2, 0.3, 0.4)
REST = tuple(method for method in PAPER if method not in {"fedcome", "feddyn"})
BASELINES = tuple(method for method in PAPER if method != "fedcome")

CONTENTS = {
    "full_participation": Contents(
        claims=(
            Claim(
                "best-full",
                "With all clients, FedCOME has the best accuracy on MNIST, CIFAR-10 and CIFAR-100.",
                FULL,
                claims.best("fedcome", "data.dataset"),
                about={"data.dataset": ("mnist", "cifar10", "cifar100")},
            ),
            Claim(
                "femnist-feddc",
                "With all clients, FedDC is ahead of all on FEMNIST.",
                FULL,
                claims.best("feddc", "data.dataset"),
                about={"data.dataset": ("femnist",)},
            ),
            Claim(
                "femnist-comparable",
                "With all clients, FedCOME is comparable to the best method on FEMNIST, FedDC: "
                f"within {claims.MARGIN:g} points.",
                FULL,
                claims.comparable("fedcome", "feddc", "data.dataset"),
                about={"data.dataset": ("femnist",)},
            ),
            Claim(
                "sooner",
                "With all clients, FedCOME needs fewer rounds than every baseline to the accuracy "
                "that FedAvg ends with.",
                CONVERGENCE,
                claims.sooner("fedcome", BASELINES),
                about={"data.dataset": ("mnist", "cifar10", "cifar100")},
                unit="rounds",
            ),
            Claim(
                "feddc-slow",
                "FedDC converges slowly on CIFAR: it needs more rounds than FedCOME to the "
                "accuracy that FedAvg ends with.",
                CONVERGENCE,
                claims.sooner("fedcome", ["feddc"]),
                about={"data.dataset": ("cifar10", "cifar100")},
                unit="rounds",
            ),
            Claim(
                "no-conflict-left",
                "After the consensus no update of a cohort is in conflict with the step.",
                "method, the consensus",
                claims.no_conflict_left,
                "in every run",
                unit="conflicts",
            ),
        ),
    ),
    "heterogeneity": Contents(
        claims=(
            Claim(
                "best-heterogeneous",
                "FedCOME is best with 2 and with 3 classes per client.",
                HETEROGENEITY,
                claims.best("fedcome", "data.partition.classes"),
                about={"data.partition.classes": (2, 3)},
            ),
            Claim(
                "feddyn-4-classes",
                "With 4 classes per client, FedDyn is best.",
                HETEROGENEITY,
                claims.best("feddyn", "data.partition.classes"),
                about={"data.partition.classes": (4,)},
            ),
            Claim(
                "two-ahead",
                "FedCOME and FedDyn are ahead of all others, whatever the classes per client.",
                HETEROGENEITY,
                claims.ahead(["fedcome", "feddyn"], REST, "data.partition.classes"),
                about={"data.partition.classes": (2, 3, 4)},
            ),
            Claim(
                "lead-grows",
                "FedCOME's lead over FedDyn grows with heterogeneity, from 4 classes per client "
                "to 2.",
                HETEROGENEITY,
                claims.lead_grows("fedcome", "feddyn", "data.partition.classes"),
                "on average",
                about={"data.partition.classes": (2, 4)},
            ),
        ),
    ),
    "partial_participation": Contents(
        claims=(
            Claim(
                "sampler-gain",
                "The similarity sampler generally improves accuracy, over all methods and shares "
                "of participation.",
                PARTIAL,
                claims.sampler_gain,
                "on average",
                about={"participation": SHARES},
            ),
            Claim(
                "sampler-gain-shrinks",
                "FedCOME gains most from the sampler with few clients, at 10 and 20 %.",
                PARTIAL,
                claims.gain_shrinks,
                "on average",
                about={"participation": SHARES},
            ),
            Claim(
                "best-with-sampler",
                "With the sampler, FedCOME is best at every share of participation.",
                PARTIAL,
                claims.best("fedcome", "participation"),
                about={"participation": SHARES, "sampler.name": ("similarity",)},
            ),
            Claim(
                "random-many",
                "With random cohorts of 30 and 40 %, FedCOME is best.",
                PARTIAL,
                claims.best("fedcome", "participation"),
                about={"participation": (0.3, 0.4), "sampler.name": ("random",)},
            ),
            Claim(
                "random-few",
                "With random cohorts of 10 and 20 %, FedDyn is best.",
                PARTIAL,
                claims.best("feddyn", "participation"),
                about={"participation": (0.1, 0.2), "sampler.name": ("random",)},
            ),
        ),
    ),
    "sensitivity": Contents(
        claims=(
            Claim(
                "stable",
                "FedCOME is stable for α and μ of 0.5, 0.7 and 0.9: no two of these settings "
                f"differ by more than {claims.MARGIN:g} points.",
                SENSITIVITY,
                claims.stable,
                about={
                    "sampler.ema": claims.STABLE,
                    "sampler.greedy_fraction": claims.STABLE,
                },
            ),
        ),
        figures=usual_figures(figures.SENSITIVITY),
    ),
    "client_loss": Contents(
        claims=(
            Claim(
                "loss-ends-lower",
                "With all clients, every client's loss ends lower than it began.",
                CLIENT_LOSS,
                claims.falls(at_every_step=False, participation=1.0),
                "in every run",
                unit="%",
            ),
            Claim(
                "loss-never-rises",
                "With all clients, no client's loss rises in any round, the first included.",
                CLIENT_LOSS,
                claims.falls(at_every_step=True, participation=1.0),
                "in every run",
                unit="%",
            ),
            Claim(
                "partial-loss-ends-lower",
                "With 20 % of the clients and the sampler, every client's loss ends lower than it "
                "began.",
                CLIENT_LOSS,
                claims.falls(at_every_step=False, participation=0.2, sampler__name="similarity"),
                "in every run",
                unit="%",
            ),
            Claim(
                "partial-loss-never-rises",
                "With 20 % of the clients and the sampler, the losses of all clients keep falling: "
                "none rises in any round.",
                CLIENT_LOSS,
                claims.falls(at_every_step=True, participation=0.2, sampler__name="similarity"),
                "in every run",
                unit="%",
            ),
            Claim(
                "sampler-smooths",
                "With 20 % of the clients, the sampler lets fewer losses rise than random cohorts.",
                CLIENT_LOSS,
                claims.smoother_with_sampler,
                "on average",
                unit="%",
            ),
        ),
        figures=usual_figures(figures.CLIENT_LOSS),
    ),
    "fairness": Contents(
        claims=(
            Claim(
                "sharper",
                "Client accuracies differ less under FedCOME than under FedFV.",
                FAIRNESS,
                claims.sharper,
                about={"data.dataset": ("femnist", "cifar10")},
            ),
        ),
        figures=usual_figures(figures.SORTED_ACCURACY, figures.CLIENT_ACCURACY),
        tables=(tables.accuracy_table, tables.fairness_table),
    ),
    "controls": Contents(
        claims=(
            Claim(
                "not-only-longer",
                "FedCOME's gain is more than a longer step: it is ahead of FedAvg with a server "
                "rate tuned on held-out examples.",
                None,
                claims.beats_longer_steps,
                "on average",
            ),
            Claim(
                "equal-length",
                "FedCOME's gain is more than a longer step: cut to FedAvg's length, it is still "
                "ahead of FedAvg.",
                None,
                claims.beats_at_equal_length,
                "on average",
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
        verdicts.check(claim, grid, studies.get(grid))
        for grid, contents in CONTENTS.items()
        for claim in contents.claims
    ]
