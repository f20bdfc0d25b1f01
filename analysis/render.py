"""Tables as Markdown, CSV, LaTeX and HTML.

Every column of a table is written as up to four: ours, the tail of ours, the paper's, the
difference. The best of a column's rivals is bold, the runner-up underlined; `[2]` marks a mean over
fewer seeds than others, `(10 rounds)` trials of another length.
"""

import html
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pandas as pd

from fedcome_ray.methods import PAPER

from . import labels
from .tables import Table, TextTable


class Style(NamedTuple):
    """How a format writes what tables are made of."""

    escape: Callable[[str], str]
    bold: str
    underline: str


class Sheet(NamedTuple):
    """A table as text."""

    header: list[str]
    num_labels: int  # leading columns with words; the others are numbers
    blocks: list[list[list[str]]]  # the paper's rows, then ours if there are others


def _latex_escape(text: str) -> str:
    words = {"±": r"$\pm$", "−": "$-$", "α": r"$\alpha$", "μ": r"$\mu$", "Δ": r"$\Delta$"}
    words |= {sign: f"\\{sign}" for sign in "%&_#${}"}
    words |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(words.get(sign, sign) for sign in text)


MARKDOWN = Style(lambda text: text.replace("|", r"\|"), "**{}**", "<u>{}</u>")
LATEX = Style(_latex_escape, r"\textbf{{{}}}", r"\underline{{{}}}")
HTML = Style(html.escape, "<b>{}</b>", "<u>{}</u>")


def markdown(table: Table | TextTable) -> str:
    sheet = lay_out(table, MARKDOWN)
    rule = ["---" if i < sheet.num_labels else "---:" for i in range(len(sheet.header))]
    divider = ["*not in the paper*", *[""] * (len(sheet.header) - 1)]
    first, *others = sheet.blocks
    rows = [sheet.header, rule, *first]
    for block in others:
        rows += [divider, *block]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([f"### {table.title}", "", *lines, "", table.caption, ""])


def latex(table: Table | TextTable) -> str:
    sheet = lay_out(table, LATEX)
    blocks = ["\n".join(f"{' & '.join(row)} \\\\" for row in block) for block in sheet.blocks]
    alignment = "l" * sheet.num_labels + "r" * (len(sheet.header) - sheet.num_labels)
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            f"\\caption{{{_latex_escape(f'{table.title}. {table.caption}')}}}",
            f"\\label{{tab:{table.name.replace('_', '-')}}}",
            f"\\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            f"{' & '.join(sheet.header)} \\\\",
            r"\midrule",
            "\n\\midrule\n".join(blocks),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def csv(table: Table | TextTable) -> str:
    """The cells as they are, for programs."""
    if isinstance(table, TextTable):
        return table.texts.to_csv(index=False, lineterminator="\n")
    hidden = ["more_is_better", "is_papers", "length"]
    return table.cells.drop(columns=hidden).to_csv(index=False, lineterminator="\n")


def html_table(table: Table | TextTable) -> str:
    sheet = lay_out(table, HTML)

    def row(cells: list[str], first: str) -> str:
        tags = [first if i < sheet.num_labels else "td" for i in range(len(cells))]
        return (
            "<tr>" + "".join(f"<{t}>{c}</{t}>" for t, c in zip(tags, cells, strict=True)) + "</tr>"
        )

    words, numbers = sheet.header[: sheet.num_labels], sheet.header[sheet.num_labels :]
    head = "".join(f'<th scope="col" class="words">{cell}</th>' for cell in words)
    head += "".join(f'<th scope="col">{cell}</th>' for cell in numbers)
    body = "".join(
        f"<tbody>{''.join(row(cells, 'th') for cells in block)}</tbody>" for block in sheet.blocks
    )
    caption = f"<caption>{html.escape(table.caption)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead>{body}</table>"


def lay_out(table: Table | TextTable, style: Style) -> Sheet:
    """Texts in rows and columns."""
    if isinstance(table, TextTable):
        rows = [[style.escape(str(text)) for text in row] for row in table.texts.to_numpy()]
        return Sheet([style.escape(str(name)) for name in table.texts], 1, [rows])
    cells, seeds = table.cells, table.cells["seeds"].max()
    header = [style.escape(labels.name(setting)) for setting in table.rows]
    columns = list(dict.fromkeys(cells[table.column]))
    parts = {column: _parts(cells[cells[table.column] == column]) for column in columns}
    for column in columns:
        header.append(style.escape(labels.value(table.column, column)))
        header += [style.escape(part) for part in parts[column]]
    blocks: dict[bool, list[list[str]]] = {}
    for _, row in cells.groupby(list(table.rows), dropna=False, sort=False):
        texts = [style.escape(labels.value(s, row[s].iloc[0])) for s in table.rows]
        by_column = row.set_index(table.column)
        for column in columns:
            cell = by_column.loc[column] if column in by_column.index else None
            texts += _cell(cell, parts[column], seeds, table.digits, style)
        is_extra = "method.name" in row and row["method.name"].iloc[0] not in PAPER
        blocks.setdefault(is_extra, []).append(texts)
    return Sheet(header, len(table.rows), [blocks[key] for key in sorted(blocks)])


def _parts(column: pd.DataFrame) -> list[str]:
    """What stands beside our number, where there is any of it in the column."""
    names = {"tail": "tail", "paper": "paper", "difference": "Δ"}
    return [text for name, text in names.items() if column[name].notna().any()]


def _cell(
    cell: "pd.Series[Any] | None", parts: list[str], seeds: int, digits: int, style: Style
) -> list[str]:
    if cell is None:
        return ["not run", *[""] * len(parts)]
    texts = [_ours(cell, seeds, digits, style)]
    if "tail" in parts:
        texts.append(style.escape(_plus_minus(cell["tail"], cell["tail_std"], digits)))
    if "paper" in parts:
        texts.append(style.escape(_plus_minus(cell["paper"], cell["paper_std"], digits)))
    if "Δ" in parts:
        signed = f"{cell['difference']:+.{digits}f}".replace("-", "−")
        texts.append("" if pd.isna(cell["difference"]) else style.escape(signed))
    return texts


def _ours(cell: "pd.Series[Any]", seeds: int, digits: int, style: Style) -> str:
    if cell["state"] != "finished":
        return str(cell["state"])
    if pd.isna(cell["mean"]):
        return "NaN"
    text = style.escape(_plus_minus(cell["mean"], cell["std"], digits))
    if cell["rank"] <= 2:
        text = (style.bold if cell["rank"] == 1 else style.underline).format(text)
    few = f" [{cell['seeds']}]" if cell["seeds"] < seeds else ""
    return text + few + (f" ({cell['length']})" if cell["length"] else "")


def _plus_minus(mean: float, std: float, digits: int) -> str:
    if math.isnan(mean):
        return ""
    return f"{mean:.{digits}f}" + ("" if math.isnan(std) else f" ± {std:.{digits}f}")
