"""All that one command writes: tables, figures, claims, the report, and a copy in MLflow."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from fedcome_ray import metrics
from fedcome_ray.errors import UserError, without_passwords
from fedcome_ray.trials.provenance import provenance

from . import claims, figures, found, page, render, report, results, scores, tables, wins
from .charts import CHARTED
from .contents import check_claims, contents_of
from .papers import papers_own_table
from .report import Page, Section
from .study import LAYOUTS, Study, open_study, with_references
from .tables import Table, TextTable
from .wins import WinTable

WRITERS = {"md": render.markdown, "csv": render.csv, "tex": render.latex}


class Request(NamedTuple):
    """What to draw."""

    uri: str
    name: str  # of a grid, or `all`
    grids: Mapping[str, str]  # experiment ids by grid
    output: Path
    formats: Sequence[str]
    at: str
    profile: str | None
    references: str | None = None  # experiment id of the grid of references, if it was run


def publish(client: MlflowClient, request: Request, *, log: bool) -> Iterator[str]:
    """Write the files; yields lines that tell what was done."""
    sections = []
    references = results.load(client, request.references) if request.references else None
    for grid, experiment_id in sorted(request.grids.items(), key=_in_order):
        try:
            study = open_study(client, experiment_id, request.profile)
        except UserError as error:
            if request.name != "all":
                raise
            yield f"{grid}: left out; {error}"
            continue
        if references is not None and experiment_id != request.references:
            study = with_references(study, references)
        section = section_of(study, request.at)
        files = [*_write_section_tables(section, request), *_write_figures(section, request.output)]
        sections.append((section, files))
        yield f"{grid}: {tables.caption_of(study)}"
    if not sections:
        raise UserError(f"--profile: no grid has the profile `{request.profile}`")
    shared = _write_claims_and_report([section for section, _ in sections], request)
    if log:
        for section, files in sections:
            yield from _log(client, section.study, [*files, *shared])
    yield f"written to {request.output}"


def _in_order(item: tuple[str, str]) -> tuple[int, str]:
    """Our grids as the paper has them, a user's behind."""
    return list(LAYOUTS).index(item[0]) if item[0] in LAYOUTS else len(LAYOUTS), item[0]


def section_of(study: Study, at: str) -> Section:
    contents = contents_of(study.grid)
    makers = [*contents.tables, tables.aside_table]
    drawings = list(figures.draw(study, contents.figures))
    shown = {*CHARTED, *(metric for drawing in drawings for metric in drawing.metrics)}
    shown.add(metrics.ACCURACY_TAIL)  # in the table
    made = [table for make in makers if (table := make(study, at)) is not None]
    paper = next((papers_own_table(study, own) for own in made if isinstance(own, Table)), None)
    return Section(study, made, drawings, tables.other_metrics_table(study, shown), paper)


def _write_tables(found: Sequence[Table | TextTable], request: Request) -> list[Path]:
    folder = request.output / "tables"
    folder.mkdir(exist_ok=True)
    files = []
    for table in found:
        for kind in request.formats:
            if kind in WRITERS:
                files.append(folder / f"{table.name}.{kind}")
                files[-1].write_text(WRITERS[kind](table), encoding="utf-8")
    return files


def _write_section_tables(section: Section, request: Request) -> list[Path]:
    others = [section.other_metrics] if section.other_metrics else []
    return _write_tables([*section.tables, *others], request)


def _write_figures(section: Section, output: Path) -> list[Path]:
    folder = output / "figures"
    folder.mkdir(exist_ok=True)
    files = []
    for drawing in section.drawings:
        for kind in ("png", "svg"):
            files.append(folder / f"{drawing.name}.{kind}")
            files[-1].write_bytes(figures.as_bytes(drawing.figure, kind))
    return files


def _write_claims_and_report(sections: Sequence[Section], request: Request) -> list[Path]:
    whole = page_of(sections, _origin(sections, request), is_all=request.name == "all")
    shared = [*whole.summary, *whole.general, claims.as_table(whole.findings)]
    files = _write_tables(shared, request)
    name = "report" if request.name == "all" else request.name
    if "md" in request.formats:
        files.append(request.output / f"{name}.md")
        page.write(files[-1], whole)
    if "csv" in request.formats:
        files.append(request.output / "tables" / "comparisons.csv")
        claims.comparisons(whole.findings).to_csv(files[-1], index=False)
    if "html" in request.formats:
        files.append(request.output / f"{name}.html")
        report.write(files[-1], whole)
    return files


def page_of(sections: Sequence[Section], origin: Mapping[str, str], *, is_all: bool) -> Page:
    """With all grids, one that the store does not hold is said to be missing.

    Unless none of them is ours: then the paper is not what the page is about.
    """
    studies = {section.study.grid: section.study for section in sections}
    is_all = is_all and not studies.keys().isdisjoint(LAYOUTS)
    findings = check_claims(studies)
    if not is_all:
        findings = [finding for finding in findings if finding.grid in studies]
    groups = found.what_we_found(studies.values(), findings)
    if not is_all:
        return Page(sections, groups, [], [], findings, origin, [])
    general = [
        tables.datasets_table(studies.values()),
        tables.search_space_table(studies.get("search")),
    ]
    missing = [grid for grid in LAYOUTS if grid not in studies]
    return Page(sections, groups, _summary(sections), general, findings, origin, missing)


def _summary(sections: Sequence[Section]) -> list[TextTable]:
    """What the grids that compare methods say together."""
    contests = [
        section.study
        for section in sections
        if any(isinstance(table, WinTable) for table in section.tables)
    ]
    table = wins.win_table(contests, "wins", "Who beats whom, over all grids")
    return [table] if table and len(contests) > 1 else []


def _origin(sections: Sequence[Section], request: Request) -> dict[str, str]:
    """What was read, by what, and what had made it."""
    trials = [scores.trials(section.study.frame) for section in sections]

    def unique(column: str) -> str:
        found = {value for own in trials for value in own[column] if value}
        return "; ".join(sorted(found)) or "not stored"

    return {
        "store": without_passwords(request.uri),
        "grids": ", ".join(section.study.grid for section in sections),
        "drawn": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "drawn by commit": provenance()["commit"],
        "trials run by commit": unique("commit"),
        "versions": unique("versions"),
        "machines": unique("machine"),
    }


def _log(client: MlflowClient, study: Study, files: Sequence[Path]) -> Iterator[str]:
    """Copy the files to the grid's newest launch; a store that only can be read is no failure."""
    launch = results.newest_launch(client, study.frame["experiment_id"].iloc[0])
    if launch is None:
        yield f"{study.grid}: no launch to log to"
        return
    try:
        for file in files:
            client.log_artifact(launch.info.run_id, str(file), "analysis")
    except (MlflowException, OSError) as error:
        yield f"{study.grid}: not logged to MLflow: {str(error).splitlines()[0]}"
