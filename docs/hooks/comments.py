"""For the reference: a comment behind a field explains it; what `__init__` computes is private."""

import io
import tokenize
from typing import Any

import griffe


class Comments(griffe.Extension):
    """Griffe calls these while it reads the code."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        if attr.docstring is None and (text := _comment(attr)):
            attr.docstring = griffe.Docstring(text, parent=attr, lineno=attr.lineno)

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        for name, member in list(cls.members.items()):
            is_computed = (
                member.is_attribute
                and member.labels >= {"instance-attribute"}
                and "class-attribute" not in member.labels
                and member.annotation is None
            )
            if is_computed and member.docstring is None:
                del cls.members[name]


def _comment(attr: griffe.Attribute) -> str:
    """What stands behind the last line of a definition."""
    source = "\n".join(line.strip() for line in attr.lines)
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, IndentationError):
        return ""
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    text = comments[-1].lstrip("# ") if comments else ""
    return "" if text.startswith(("type:", "noqa")) else text
