"""Puts the `--help` of every command into the page that asks for it, when the site is built."""

import argparse
import importlib
import os
import pkgutil
from collections.abc import Iterator
from typing import Any

MARK = "<!-- the help of every command -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for every page."""
    return markdown.replace(MARK, "\n".join(sections())) if MARK in markdown else markdown


def sections() -> Iterator[str]:
    """A heading and the help of each command, subcommands after their command."""
    os.environ |= {"COLUMNS": "96", "NO_COLOR": "1", "PYTHON_COLORS": "0"}
    for parser in parsers():
        yield section(parser, "##")
        yield from (section(command, "###") for command in subcommands(parser))


def section(parser: argparse.ArgumentParser, level: str) -> str:
    name = parser.prog.removeprefix("python -m ")
    return f"{level} {name}\n\n```text\n{parser.format_help().rstrip()}\n```\n"


def parsers() -> Iterator[argparse.ArgumentParser]:
    """Those of the modules that can be run with `python -m`."""
    package = importlib.import_module("fedcome_ray")
    names = [f"fedcome_ray.{m.name}" for m in pkgutil.iter_modules(package.__path__) if not m.ispkg]
    for name in [*names, "analysis.__main__"]:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is not None and name.startswith(error.name):
                continue  # there is no such command
            raise
        if hasattr(module, "_parser"):
            yield module._parser()


def subcommands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.values()
