"""YAML that users write, in grids, overlays and on command lines: read, or refused in one line.

What PyYAML itself would answer with a traceback or with a minute of nothing is refused here: a
scalar that is not what its form or its tag says, an alias that contains itself or stands for
millions of values, nesting without end.
"""

import re
from typing import Any, NoReturn

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError
from yaml.nodes import MappingNode, Node, SequenceNode

from fedcome_ray.errors import UserError, cut

MAX_DEPTH = 40
MAX_VALUES = 100_000
"""All of a text, each as often as it is repeated by aliases."""
MAX_MERGED = 100
"""Mappings that one `<<` joins."""
UNUSABLE = re.compile("[\0\ud800-\udfff]")
"""In a text that may become the name of a file."""


class NotYamlError(UserError):
    """A text that cannot be read; whoever knows where it is from says so."""


def read(text: str) -> Any:
    """What a text says."""
    try:
        return yaml.load(text, _Loader)  # nosec B506  # it is a SafeLoader
    except yaml.YAMLError as error:
        raise NotYamlError(_line(error)) from None


def _line(error: yaml.YAMLError) -> str:
    if not isinstance(error, yaml.MarkedYAMLError):
        return cut(" ".join(str(error).split()))
    said = ", ".join(filter(None, [error.context, error.problem]))
    mark = error.problem_mark or error.context_mark
    where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
    return f"{cut(said)}{where}"


class _Loader(yaml.SafeLoader):
    """Counts while it composes: aliases are cheap then, and costly for whoever walks over them."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._num_values = 0
        self._sizes: dict[str, int | None] = {}  # by anchor; None while it is being read

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        before = self._num_values
        is_alias = isinstance(event, yaml.AliasEvent)
        size = self._sizes.get(event.anchor, 1) if is_alias else 1
        if size is None:
            raise ComposerError(None, None, f"`*{event.anchor}` contains itself", event.start_mark)
        self._num_values += size
        if self._num_values > MAX_VALUES:
            raise ComposerError(None, None, f"more than {MAX_VALUES:,} values", event.start_mark)
        if self._depth >= MAX_DEPTH:
            raise ComposerError(None, None, f"nested deeper than {MAX_DEPTH}", event.start_mark)
        anchor = None if is_alias else event.anchor
        if anchor is not None:
            self._sizes[anchor] = None
        self._depth += 1
        node: Node | None = super().compose_node(parent, index)
        self._depth -= 1
        if anchor is not None:
            self._sizes[anchor] = self._num_values - before
        return node

    def flatten_mapping(self, node: MappingNode) -> None:
        for key, value in node.value:
            is_merge = key.tag == "tag:yaml.org,2002:merge" and isinstance(value, SequenceNode)
            if is_merge and len(value.value) > MAX_MERGED:
                self._refuse(value, f"`<<` joins more than {MAX_MERGED} mappings")
        super().flatten_mapping(node)
        if len(node.value) > MAX_VALUES:
            self._refuse(node, f"more than {MAX_VALUES:,} values")

    def construct_object(self, node: Node, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, TypeError):
            self._refuse(node, f"`{cut(str(node.value))}` is no {node.tag.rpartition(':')[2]}")
        if isinstance(value, str) and UNUSABLE.search(value):
            self._refuse(node, "a text with a NUL or with half a character")
        if isinstance(value, int) and value.bit_length() > 64:
            self._refuse(node, f"`{cut(str(node.value))}` needs more than 64 bits")
        return value

    def _refuse(self, node: Node, problem: str) -> NoReturn:
        raise ConstructorError(None, None, problem, node.start_mark) from None
