import base64
import json
import zlib
from typing import Any

from fedcome_ray import metrics
from fedcome_ray.tracking import views


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


def test_there_is_a_chart_for_each_curve() -> None:
    charts = decoded(views.CURVES)["compareRunCharts"]
    assert [chart["metricKey"] for chart in charts] == list(metrics.CURVES)


def test_the_same_view_is_the_same_tag() -> None:
    assert views.saved_view_tags() == views.saved_view_tags()
