"""The report: one HTML file that needs nothing but itself."""

import base64
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from . import claims, render, scores, svg
from .charts import charts
from .figures import Drawing
from .found import Group
from .profiles import scopes
from .study import Study
from .tables import Table, TextTable, caption_of
from .verdicts import Finding, Part

BADGES = {  # how a verdict looks
    "reproduced": "yes",
    "holds here": "yes",
    "leans for": "yes lean",
    "open": "open",
    "leans against": "no lean",
    "fails here": "no",
    "not reproduced": "no",
    "not judged": "none",
}
TRIAL_COLUMNS = {  # of the list of trials, and what it calls them
    "run_id": "run",
    "grid": "grid",
    "method.name": "method",
    "seed": "seed",
    "status": "status",
    "trial_key": "key",
    "launch": "launch",
    "commit": "commit",
    "dirty": "with changes",
}


class Section(NamedTuple):
    """What the report shows of one grid."""

    study: Study
    tables: Sequence[Table | TextTable]
    drawings: Sequence[Drawing]
    other_metrics: TextTable | None
    paper: TextTable | None  # the paper's own, where it is not beside ours


class Page(NamedTuple):
    """What the report shows."""

    sections: Sequence[Section]
    found: Sequence[Group]  # the first page
    summary: Sequence[Table | TextTable]  # tables of the first page
    general: Sequence[Table | TextTable]  # tables that belong to no single grid
    findings: Sequence[Finding]
    origin: Mapping[str, str]  # what was read and how
    missing: Sequence[str]  # grids of the project that have not been run

    @property
    def title(self) -> str:
        return "FedCOME: the paper beside our runs" if self.findings else "Our runs"


def write(path: Path, page: Page) -> None:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    drawn = charts(section.study for section in page.sections)
    trials = _trials([section.study for section in page.sections])
    text = environment.get_template("report.html").render(
        title=page.title,
        sections=[_section(section, drawn["grids"]) for section in page.sections],
        summary=[_table(table) for table in page.summary],
        general=[_table(table) for table in page.general],
        scopes=scopes(section.study for section in page.sections),
        found=page.found,
        findings=page.findings,
        claims=_csv_link("claims", render.csv(claims.as_table(page.findings))),
        comparisons=_csv_link("comparisons", claims.comparisons(page.findings).to_csv(index=False)),
        verdicts=_verdicts(page.findings),
        badges=BADGES,
        missing=page.missing,
        num_trials=len(trials["rows"]),
        trials=_json(trials),
        origin=page.origin,
        charts=_json(drawn),
        number=_number,
        interval=_interval,
    )
    path.write_text(text, encoding="utf-8")


def _section(section: Section, drawn: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "grid": section.study.grid,
        "title": section.study.layout.title,
        "profile": section.study.profile,
        "caption": caption_of(section.study),
        "tables": [_table(table) for table in section.tables],
        "drawings": [_drawing(drawing) for drawing in section.drawings],
        "has_chart": section.study.grid in drawn,
        "other_metrics": section.other_metrics and _table(section.other_metrics),
        "paper": section.paper and _table(section.paper),
    }


def _drawing(drawing: Drawing) -> dict[str, str]:
    return {
        "name": drawing.name,
        "caption": drawing.caption,
        "svg": svg.inline(drawing.figure, drawing.name, drawing.caption),
        "size": svg.size_of(drawing.figure),
    }


def _table(table: Table | TextTable) -> dict[str, Any]:
    return {
        "title": table.title,
        "html": render.html_table(table),
        "csv": _csv_link(table.name, render.csv(table)),
    }


def _csv_link(name: str, text: str) -> dict[str, str]:
    """A download that is part of the page: it needs no server."""
    content = base64.b64encode(text.encode()).decode()
    return {"name": f"{name}.csv", "address": f"data:text/csv;charset=utf-8;base64,{content}"}


def _trials(studies: Sequence[Study]) -> dict[str, Any]:
    """Of all grids; the page's script makes a table of it, once it is asked for."""
    parts = [part for study in studies for part in (study.frame, study.aside, study.references)]
    frames = [scores.trials(part)[[*TRIAL_COLUMNS]] for part in parts if len(part)]
    rows = [tuple(map(str, row)) for frame in frames for row in frame.to_numpy()]
    # Several grids may show a reference.
    return {"columns": list(TRIAL_COLUMNS.values()), "rows": list(dict.fromkeys(rows))}


def _json(content: Any) -> str:
    """As text within a script element, which `</` would end."""
    return json.dumps(content, allow_nan=False, separators=(",", ":")).replace("</", "<\\/")


def _verdicts(findings: Sequence[Finding]) -> dict[str, int]:
    """How often each was found, the best first."""
    counts = Counter[str](finding.verdict for finding in findings)
    return {verdict: counts[verdict] for verdict in BADGES if verdict in counts}


def _interval(part: Part) -> str:
    return f"{_number(part.low)} to {_number(part.high)}" if math.isfinite(part.low) else "–"


def _number(value: float) -> str:
    return "–" if not math.isfinite(value) else f"{value:+.2f}".replace("-", "−")
