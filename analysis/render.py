"""Tables as Markdown, CSV, LaTeX and HTML.

Every column of a table is written as up to four: ours, the tail of ours, the paper's, the
difference. The best of a column's rivals is bold, the runner-up underlined; `[2]` marks a mean over
fewer seeds than others, `(10 rounds)` trials of another length.
"""

import html
import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pandas as pd

from fedcome_ray.methods import PAPER, REFERENCES

from . import labels
from .tables import Table, TextTable
from .wins import WinTable

TAG = re.compile("<[^>]*>")


class Style(NamedTuple):
    """How a format writes what tables are made of."""

    escape: Callable[[str], str]
    bold: str
    underline: str


class Sheet(NamedTuple):
    """A table as text."""

    header: list[str]
    num_labels: int  # leading columns with words; the others are numbers
    blocks: list[list[list[str]]]  # the paper's rows, then others, then references
    headings: list[str]  # of the blocks


def _latex_escape(text: str) -> str:
    words = {"±": r"$\pm$", "−": "$-$", "α": r"$\alpha$", "μ": r"$\mu$", "Δ": r"$\Delta$"}
    words |= {sign: f"\\{sign}" for sign in "%&_#${}"}
    words |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(words.get(sign, sign) for sign in text)


def _html_escape(text: str) -> str:
    """A deviation may stand under its mean where a page is narrow, but is not torn apart."""
    return html.escape(text.replace("± ", "±\u00a0"))


MARKDOWN = Style(lambda text: text.replace("|", r"\|"), "**{}**", "<u>{}</u>")
LATEX = Style(_latex_escape, r"\textbf{{{}}}", r"\underline{{{}}}")
HTML = Style(_html_escape, "<b>{}</b>", "<u>{}</u>")


def markdown(table: Table | TextTable) -> str:
    sheet = lay_out(table, MARKDOWN)
    rule = ["---" if i < sheet.num_labels else "---:" for i in range(len(sheet.header))]
    rows = [sheet.header, rule, *sheet.blocks[0]]
    for heading, block in zip(sheet.headings[1:], sheet.blocks[1:], strict=True):
        rows += [[f"*{heading}*", *[""] * (len(sheet.header) - 1)], *block]
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
    if isinstance(table, WinTable):
        return table.counts.to_csv(index=False, lineterminator="\n")
    if isinstance(table, TextTable):
        return table.texts.to_csv(index=False, lineterminator="\n")
    hidden = ["more_is_better", "is_papers", "length", "rule", "stopped"]
    return table.cells.drop(columns=hidden).to_csv(index=False, lineterminator="\n")


def html_table(table: Table | TextTable) -> str:
    sheet = lay_out(table, HTML)
    shares = _shares(table)
    words, numbers = sheet.header[: sheet.num_labels], sheet.header[sheet.num_labels :]
    head = "".join(f'<th scope="col" class="words">{cell}</th>' for cell in words)
    head += "".join(f'<th scope="col">{cell}</th>' for cell in numbers)
    body = "".join(_html_block(block, sheet.num_labels, shares) for block in sheet.blocks)
    caption = f"<caption>{html.escape(table.caption)}</caption>"
    width = f'style="--letters: {_letters(sheet)}"'
    return f"<table {width}>{caption}<thead><tr>{head}</tr></thead>{body}</table>"


def _html_block(rows: list[list[str]], num_labels: int, shares: list[list[float]]) -> str:
    lines = []
    for place, row in enumerate(rows):
        line = "".join(f'<th scope="row">{cell}</th>' for cell in row[:num_labels])
        for column, cell in enumerate(row[num_labels:]):
            share = shares[place][column] if shares else math.nan
            shade = "" if math.isnan(share) else f' class="share" style="--share: {share:.2f}"'
            line += f"<td{shade}>{cell}</td>"
        lines.append(f"<tr>{line}</tr>")
    return f"<tbody>{''.join(lines)}</tbody>"


def _shares(table: Table | TextTable) -> list[list[float]]:
    """How deep the cells of a table of wins are coloured, empty for other tables."""
    if not isinstance(table, WinTable):
        return []
    shares = table.counts.pivot(index="method", columns="other", values="share")
    rows, columns = table.texts.iloc[:, 0], table.texts.columns[1:]
    return [list(row) for row in shares.reindex(index=rows, columns=columns).to_numpy(float)]


def _letters(sheet: Sheet) -> int:
    """How narrow the table can be, in letters: the longest words of its columns side by side.

    Printing takes letters small enough for all columns.
    """
    rows = [sheet.header, *(row for block in sheet.blocks for row in block)]
    return sum(max(map(_longest_word, column)) + 1 for column in zip(*rows, strict=True))


def _longest_word(cell: str) -> int:
    return max(map(len, html.unescape(TAG.sub("", cell)).split(" ")))


def lay_out(table: Table | TextTable, style: Style) -> Sheet:
    """Texts in rows and columns."""
    if isinstance(table, TextTable):
        rows = [[style.escape(str(text)) for text in row] for row in table.texts.to_numpy()]
        return Sheet([style.escape(str(name)) for name in table.texts], 1, [rows], [""])
    cells, seeds = table.cells, table.cells["seeds"].max()
    header = [style.escape(labels.name(setting)) for setting in table.rows]
    columns = _run_first(cells, table.column)
    parts = {column: _parts(cells[cells[table.column] == column]) for column in columns}
    for column in columns:
        header.append(style.escape(labels.value(table.column, column)))
        header += [style.escape(part) for part in parts[column]]
    blocks: dict[str, list[list[str]]] = {heading: [] for heading in HEADINGS}
    for _, row in cells.groupby(list(table.rows), dropna=False, sort=False):
        texts = [style.escape(labels.value(s, row[s].iloc[0])) for s in table.rows]
        by_column = row.set_index(table.column)
        for column in columns:
            cell = by_column.loc[column] if column in by_column.index else None
            texts += _cell(cell, parts[column], seeds, table.digits, style)
        blocks[_heading(row)].append(texts)
    filled = {heading: rows for heading, rows in blocks.items() if rows}
    return Sheet(header, len(table.rows), list(filled.values()), list(filled))


HEADINGS = ("", "not in the paper", "references")


def _heading(row: pd.DataFrame) -> str:
    """Of the block of a table's rows to which this one belongs."""
    method = row["method.name"].iloc[0] if "method.name" in row else PAPER[0]
    if method in PAPER:
        return HEADINGS[0]
    return HEADINGS[2] if method in REFERENCES else HEADINGS[1]


def _run_first(cells: pd.DataFrame, column: str) -> list[Any]:
    """The columns of a table; those in which nothing was run stand behind."""
    ran = set(cells.loc[cells["state"] != "not run", column])
    return sorted(dict.fromkeys(cells[column]), key=lambda value: value not in ran)


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
        texts.append(style.escape(plus_minus(cell["tail"], cell["tail_std"], digits)))
    if "paper" in parts:
        texts.append(style.escape(plus_minus(cell["paper"], cell["paper_std"], digits)))
    if "Δ" in parts:
        signed = f"{cell['difference']:+.{digits}f}".replace("-", "−")
        texts.append("" if pd.isna(cell["difference"]) else style.escape(signed))
    return texts


def _ours(cell: "pd.Series[Any]", seeds: int, digits: int, style: Style) -> str:
    if cell["state"] != "finished":
        return str(cell["state"])
    if pd.isna(cell["mean"]):
        return "NaN"
    text = style.escape(plus_minus(cell["mean"], cell["std"], digits))
    if cell["rank"] <= 2:
        text = (style.bold if cell["rank"] == 1 else style.underline).format(text)
    few = f" [{cell['seeds']}]" if cell["seeds"] < seeds else ""
    return text + few + (f" ({cell['length']})" if cell["length"] else "")


def plus_minus(mean: float, std: float, digits: int) -> str:
    if math.isnan(mean):
        return ""
    return f"{mean:.{digits}f}" + ("" if math.isnan(std) else f" ± {std:.{digits}f}")
