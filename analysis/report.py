"""The report: one HTML file that needs nothing but itself."""

import base64
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fedcome_ray import metrics

from . import figures, render, scores, style
from .claims import Finding, Part
from .curves import curves
from .figures import Drawing
from .study import Study
from .tables import Table, TextTable, caption_of

MOST_POINTS = 150  # of a curve in a chart: more cannot be seen
LARGEST_SVG = 400_000  # bytes; a figure with more is embedded as PNG
CHARTED = {
    metrics.ACCURACY: "test accuracy",
    metrics.WORST_DECILE: "accuracy of the worst 10 % of clients",
    metrics.CLIENT_STD: "standard deviation of client accuracy",
    metrics.LOSS: "test loss",
    metrics.OPPOSED: "clients opposed to the step",
    metrics.CONFLICTS_BEFORE: "conflicting pairs before the consensus",
    metrics.STEP_RATIO: "length of the step, FedAvg's = 1",
}
BADGES = {"reproduced": "yes", "not reproduced": "no", "not enough runs": "open"}


class Section(NamedTuple):
    """What the report shows of one grid."""

    study: Study
    tables: Sequence[Table | TextTable]
    drawings: Sequence[Drawing]
    other_metrics: TextTable | None


def write(
    path: Path,
    sections: Sequence[Section],
    general: Sequence[Table | TextTable],
    findings: Sequence[Finding],
    origin: Mapping[str, str],
    missing: Sequence[str],
) -> None:
    """`general` are tables that belong to no single grid, `origin` says what was read and how,
    `missing` are grids of the project that have not been run.
    """
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    charts = {section.study.grid: chart(section.study) for section in sections}
    text = environment.get_template("report.html").render(
        sections=[_section(section, charts[section.study.grid]) for section in sections],
        general=[_table(table) for table in general],
        findings=findings,
        verdicts={verdict: _count(findings, verdict) for verdict in BADGES},
        badges=BADGES,
        missing=missing,
        trials=[trial for section in sections for trial in _trials(section.study)],
        origin=origin,
        charts=json.dumps(charts, allow_nan=False).replace("</", "<\\/"),
        number=_number,
        interval=_interval,
    )
    path.write_text(text, encoding="utf-8")


def chart(study: Study) -> dict[str, Any]:
    """The curves of a study for the script of the page: metric -> panel -> curves."""
    tables = {metric: curves(study, metric) for metric in CHARTED}
    return {
        CHARTED[metric]: {
            str(panel) or "all": _chart_panel(own)
            for panel, own in table.groupby("panel", sort=False)
        }
        for metric, table in tables.items()
        if not table.empty
    }


def _chart_panel(panel: pd.DataFrame) -> list[dict[str, Any]]:
    looks = style.looks(dict(zip(panel["label"], panel["method"], strict=True)))
    return [
        {
            "label": label,
            "colour": looks[str(label)].colour,
            "dash": " ".join(str(2 * length) for length in looks[str(label)].dash),
            "width": looks[str(label)].width,
            "seeds": int(own["seeds"].max()),
            **_points(own),
        }
        for label, own in panel.groupby("label", sort=False)
    ]


def _points(own: pd.DataFrame) -> dict[str, list[Any]]:
    chosen = np.unique(np.linspace(0, len(own) - 1, MOST_POINTS).round().astype(int))
    own = own.iloc[chosen]
    return {
        "x": [int(number) for number in own["round"]],
        "mean": [_finite(value) for value in own["mean"]],
        "std": [_finite(value) for value in own["std"]],
    }


def _finite(value: float) -> float | None:
    return round(float(value), 5) if math.isfinite(value) else None


def _section(section: Section, has_chart: Any) -> dict[str, Any]:
    return {
        "grid": section.study.grid,
        "title": section.study.layout.title,
        "profile": section.study.profile,
        "caption": caption_of(section.study),
        "tables": [_table(table) for table in section.tables],
        "drawings": [
            {"caption": d.caption, "source": _data_uri(d), "name": d.name} for d in section.drawings
        ],
        "has_chart": bool(has_chart),
        "other_metrics": section.other_metrics and _table(section.other_metrics),
    }


def _table(table: Table | TextTable) -> dict[str, str]:
    return {"title": table.title, "html": render.html_table(table)}


def _data_uri(drawing: Drawing) -> str:
    mime, image = "svg+xml", figures.as_bytes(drawing.figure, "svg")
    if len(image) > LARGEST_SVG:
        mime, image = "png", figures.as_bytes(drawing.figure, "png")
    return f"data:image/{mime};base64,{base64.b64encode(image).decode()}"


def _trials(study: Study) -> list[dict[Any, Any]]:
    columns = ["grid", "trial_key", "run_id", "status", "seed", "launch", "commit", "dirty"]
    columns += ["versions", "machine", "experiment_id", "method.name"]
    rows = scores.trials(study.frame)[columns].rename(columns={"method.name": "method"})
    return [dict(zip(rows, values, strict=True)) for values in rows.to_numpy()]


def _count(findings: Sequence[Finding], verdict: str) -> int:
    return sum(finding.verdict == verdict for finding in findings)


def _interval(part: Part) -> str:
    return f"{_number(part.low)} to {_number(part.high)}" if math.isfinite(part.low) else "–"


def _number(value: float) -> str:
    return "–" if not math.isfinite(value) else f"{value:+.2f}".replace("-", "−")
