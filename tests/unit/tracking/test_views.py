import base64
import json
import zlib
from typing import Any

import pytest

from fedcome_ray import metrics
from fedcome_ray.experiments.trial import parse_trial
from fedcome_ray.tracking import titles, views


def decoded(key: str) -> dict[str, Any]:
    envelope = json.loads(views.saved_view_tags()[f"mlflow.sharedViewState.{key}"])
    prefix, _, packed = envelope["state"].partition(";")
    assert prefix == "deflate"
    state: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed)))
    return state


def test_the_table_is_sorted_by_accuracy_and_shows_methods_and_headlines() -> None:
    table = decoded(views.TABLE)
    assert table["orderByKey"] == "metrics.`accuracy/test`"
    assert "params.`method.name`" in table["selectedColumns"]
    headlines = [f"metrics.`{name}`" for name in metrics.HEADLINES]
    assert table["selectedColumns"][-len(headlines) :] == headlines


@pytest.mark.parametrize("view", [views.SEEDS, views.METHODS])
def test_there_is_a_chart_for_each_curve(view: str) -> None:
    charts = decoded(view)["compareRunCharts"]
    assert [chart["metricKey"] for chart in charts] == list(metrics.CURVES)


@pytest.mark.parametrize("view", [views.SEEDS, views.METHODS])
def test_curves_are_grouped_by_a_tag_that_runs_have(view: str) -> None:
    (key,) = decoded(view)["groupBy"]["groupByKeys"]
    assert key["mode"] == "tag"
    assert key["groupByData"] in titles.group_tags(parse_trial({}))


def test_the_same_view_is_the_same_tag() -> None:
    assert views.saved_view_tags() == views.saved_view_tags()
