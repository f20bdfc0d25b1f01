"""Saved views of MLflow's page: what a grid's experiment shows as it opens.

MLflow keeps a view in a tag of the experiment, in a format that it does not document: an envelope
with a name, and the state of the page, deflated. It was read from the sources of 3.17 and is
tested in a browser; a page that does not understand it falls back to its defaults.
"""

import base64
import json
import zlib
from typing import Any

from fedcome_ray import metrics

COMPARED = "fedcome.compared"
"""The tag with what grids compare most: method, share of the clients, sampler."""
CONDITION = "fedcome.condition"
"""The tag that trials share which differ in their seeds alone, and no others."""
TAG = "mlflow.sharedViewState."
TABLE, SEEDS, METHODS = "fedcome-table", "fedcome-seeds", "fedcome-methods"  # keys of the views
ONLY_TRIALS = "tags.`fedcome.kind` = 'trial'"
PARAMS = (
    "method.name",
    "sampler.name",
    "participation",
    "data.dataset",
    "data.partition.classes",
    "seed",
)
ACCURACY_COLUMN = f"metrics.`{metrics.ACCURACY}`"


def saved_view_tags() -> dict[str, str]:
    """Tags for an experiment: all trials, and curves that average only what may be averaged."""
    return {
        f"{TAG}{TABLE}": _envelope("Trials by accuracy", _table()),
        f"{TAG}{SEEDS}": _envelope("Mean over seeds", _curves(CONDITION)),
        f"{TAG}{METHODS}": _envelope("By method, share, sampler", _curves(COMPARED)),
    }


def view_url(server: str, experiment_id: str, view: str) -> str:
    mode = "TABLE" if view == TABLE else "CHART"
    query = f"viewStateShareKey={view}&compareRunsMode={mode}"
    return f"{server}/#/experiments/{experiment_id}/runs?{query}"


def _table() -> dict[str, Any]:
    columns = [f"params.`{name}`" for name in PARAMS] + [
        f"metrics.`{name}`" for name in metrics.HEADLINES
    ]
    return {**_trials_by_accuracy(), "selectedColumns": columns, "columnOrder": columns}


def _curves(tag: str) -> dict[str, Any]:
    """Charts with a mean and a band for all trials that share the value of a tag.

    One tag and not several parameters, whose names would fill the page's columns and legends.
    """
    section = "fedcome-overview"
    return {
        **_trials_by_accuracy(),
        "selectedColumns": [ACCURACY_COLUMN],
        "groupBy": {
            "aggregateFunction": "average",
            "groupByKeys": [{"mode": "tag", "groupByData": tag}],
        },
        "useGroupedValuesInCharts": True,
        # Our section comes first, and stays there only if the page believes that somebody moved it.
        "isAccordionReordered": True,
        "compareRunSections": [
            {"uuid": section, "name": "Overview", "display": True, "isReordered": True}
        ],
        "compareRunCharts": [_line_chart(metric, section) for metric in metrics.CURVES],
    }


def _trials_by_accuracy() -> dict[str, Any]:
    return {
        "searchFilter": ONLY_TRIALS,
        "orderByKey": ACCURACY_COLUMN,
        "orderByAsc": False,
        "runsHiddenMode": "SHOW_ALL",  # the page's default draws ten runs
    }


def _line_chart(metric: str, section: str) -> dict[str, Any]:
    return {
        "uuid": f"fedcome-{metric}",
        "type": "LINE",
        "metricSectionId": section,
        "metricKey": metric,
        "selectedMetricKeys": [metric],
        "xAxisKey": "step",
        "xAxisScaleType": "linear",
        "scaleType": "linear",
        "lineSmoothness": 0,
        "runsCountToCompare": 100,
        "isGenerated": False,
        "deleted": False,
    }


def _envelope(name: str, state: dict[str, Any]) -> str:
    packed = base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()
    # The same view is the same tag whenever it is written, so the times are fixed.
    return json.dumps({"name": name, "createdAt": 0, "updatedAt": 0, "state": f"deflate;{packed}"})
