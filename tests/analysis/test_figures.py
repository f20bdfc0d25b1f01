import numpy as np
import pandas as pd
import pytest

from analysis import figures, style
from analysis.contents import contents_of
from analysis.study import LAYOUTS, Study, select
from fedcome_ray.methods import PAPER
from tests.analysis import synthetic
from tests.analysis.conftest import join, opened, seeds, trial


def study_with_everything(grid: str) -> Study:
    """Two methods, two seeds, clients, and a similarity table."""
    settings = {"grid": grid, "sampler__name": "similarity", "sampler__greedy_fraction": 0.7}
    frame = join(
        *(
            seeds(method, 60.0, 62.0, **settings, sampler__ema=ema, participation=0.2)
            for method in ("fedfv", "fedavg", "fedcome")
            for ema in ((0.5, 0.7) if grid == "sensitivity" else (0.5,))
        )
    )
    study = select(frame)
    runs = study.frame["run_id"].unique()
    clients = pd.DataFrame(
        [
            {
                "run_id": run,
                "round": r,
                "client": c,
                "test_accuracy": 0.5 + c / 10,
                "test_loss": 2 - r,
            }
            for run in runs
            for r in range(3)
            for c in range(4)
        ]
    )
    pairs = [(a, b) for a in range(4) for b in range(4)]
    similarity = pd.DataFrame(
        {"run_id": runs[0], "client": a, "other": b, "similarity": 1.0 if a == b else -0.2}
        for a, b in pairs
    )
    population = pd.DataFrame(
        {"run_id": runs[0], "client": range(4), "classes": ["0 1", "0 1", "2", "2 3"]}
    )
    return study._replace(clients=clients, similarity=similarity, population=population)


def draw(study: Study) -> list[figures.Drawing]:
    return list(figures.draw(study, contents_of(study.grid).figures))


@pytest.mark.parametrize("grid", [*LAYOUTS, "a_users_grid"])
def test_every_grid_can_be_drawn(grid: str) -> None:
    drawings = {d.name.removeprefix(f"{grid}_"): d for d in draw(study_with_everything(grid))}
    assert {"time", "similarity"} <= set(drawings)
    special = {
        "fairness": {"accuracy", "sorted_accuracy"},
        "client_loss": {"client_loss"},
        "sensitivity": {"sensitivity"},
    }
    assert set(drawings) & set().union(*special.values()) == special.get(grid, set())
    for drawing in drawings.values():
        assert drawing.caption
        assert figures.as_bytes(drawing.figure, "png").startswith(b"\x89PNG")


def test_the_similarity_table_is_drawn_with_the_classes_of_its_own_clients() -> None:
    study = study_with_everything("scaling")
    others = pd.DataFrame({"run_id": "another", "client": range(9), "classes": "7"})
    figure = figures.similarity(
        study._replace(population=pd.concat([others, study.population], ignore_index=True))
    )
    assert figure is not None
    words = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert words == ["0 1", "2", "2 3"]


def test_the_same_figure_is_the_same_file() -> None:
    first, second = (
        figures.as_bytes(draw(study_with_everything("fairness"))[0].figure, "svg") for _ in range(2)
    )
    assert first == second


def test_nothing_is_drawn_of_trials_that_all_failed() -> None:
    study = select(seeds("fedcome", 60.0, status="FAILED"))
    assert draw(study) == []


def test_methods_differ_in_colour_and_in_marker() -> None:
    looks = [style.LOOKS[method] for method in PAPER]
    assert len({look.colour for look in looks}) == len({look.marker for look in looks}) == 7


def test_a_method_looks_the_same_whatever_is_beside_it() -> None:
    alone = style.looks({"FedDC": "feddc"})
    assert alone["FedDC"] == style.looks({"FedAvg": "fedavg", "FedDC": "feddc"})["FedDC"]


def test_clients_are_sorted_within_each_seed_and_averaged_by_rank() -> None:
    study = opened(seeds("fedcome", 60.0, 62.0, grid="fairness"))
    accuracies = {0: (0.9, 0.5, 0.7), 1: (0.6, 0.8, 1.0)}  # of three clients
    clients = pd.concat(
        pd.DataFrame({"run_id": run, "round": 3, "client": range(3), "test_accuracy": own})
        for run, own in zip(study.frame["run_id"].unique(), accuracies.values(), strict=True)
    )
    figure = figures.sorted_accuracies(study._replace(clients=clients))
    first, second, mean = figure.axes[0].lines
    at = [0, 50, 100]
    assert list(first.get_ydata()[at]) == pytest.approx([50, 70, 90])
    assert list(second.get_ydata()[at]) == pytest.approx([60, 80, 100])
    assert list(mean.get_ydata()[at]) == pytest.approx([55, 75, 95])
    assert mean.get_label() == "FedCOME"


def test_convergence_has_a_band_over_seeds_and_begins_with_the_initial_model() -> None:
    figure = figures.convergence(synthetic.study("full_participation", seeds=3, rounds=5))
    for axis in figure.axes:
        assert len(axis.lines) == len(axis.collections) == len(PAPER)
        assert all(line.get_xdata()[0] == 0 for line in axis.lines)
    one_seed = figures.convergence(synthetic.study("full_participation", seeds=1, rounds=5))
    assert not any(axis.collections for axis in one_seed.axes)


def test_convergence_shows_where_the_curves_end_and_not_their_steep_beginning() -> None:
    accuracies = [10.0, 60.0, *np.linspace(90.0, 95.0, 28)]
    frame = join(*(trial(name, 0, *accuracies) for name in ("fedavg", "fedcome")))
    low, high = figures.convergence(select(frame)).axes[0].get_ylim()
    assert 85 < low < 91
    assert 95 < high < 97


def test_accuracy_against_bytes_goes_as_far_as_a_method_sends() -> None:
    study = synthetic.study("full_participation", seeds=3, rounds=5)
    sent, over_rounds = figures.communication(study), figures.convergence(study)
    for axis, plain in zip(sent.axes, over_rounds.axes, strict=True):
        for line, same in zip(axis.lines, plain.lines, strict=True):
            assert list(line.get_ydata()) == list(same.get_ydata())
            vectors = 3 if line.get_label() in {"SCAFFOLD", "FedDC"} else 2
            assert (line.get_xdata()[0], line.get_xdata()[-1]) == (0, 4 * vectors)
    assert sent.get_supxlabel() == "GB sent, up and down"


def test_trials_that_did_not_count_bytes_are_not_drawn_against_them() -> None:
    assert figures.communication(study_with_everything("full_participation")) is None


def test_figures_of_the_papers_size_have_room_for_everything() -> None:
    """Matplotlib warns if not, and warnings are errors."""
    for grid in ("fairness", "search", "partial_participation"):
        assert draw(synthetic.study(grid, seeds=2, rounds=5))


@pytest.mark.parametrize("settings", [6, 7, 8, 30])
def test_a_legend_has_room_for_names_longer_than_the_page_is_wide(settings: int) -> None:
    study = study_with_everything("a_users_grid")
    runs = study.frame["run_id"]
    named = study.frame.assign(setting=runs + " setting=12" * settings)
    drawings = {d.name: d.figure for d in draw(study._replace(frame=named))}
    figure = drawings["a_users_grid_convergence"]
    (legend,) = figure.legends
    shown = [text.get_text().replace("\n", " ") for text in legend.get_texts()]
    assert sorted(shown) == sorted(str(line.get_label()) for line in figure.axes[0].lines)
    bounds = legend.get_window_extent()
    assert bounds.x0 >= 0
    assert bounds.x1 <= figure.bbox.width
    assert figure.axes[0].get_window_extent().height >= 2 * figure.dpi  # inches
