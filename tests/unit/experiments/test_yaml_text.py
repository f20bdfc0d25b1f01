"""YAML that is read, and YAML that would be a traceback, a minute of nothing or gigabytes."""

import pytest
import yaml

from fedcome_ray.experiments.yaml_text import MAX_DEPTH, MAX_VALUES, NotYamlError, read

LAUGHS = "\n".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30))
MERGES = "\n".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, 30))


@pytest.mark.parametrize(
    "text",
    [
        "{a: [1, 2.5, true, null, text], b: {c: 2024-01-31, d: 0x1F}}",
        "base: &b {x: 1}\nmore: {<<: *b, y: [*b, *b]}\n",
        "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1),
        "",
        str(2**64 - 1),
    ],
)
def test_what_is_fine_is_read_as_pyyaml_reads_it(text: str) -> None:
    assert read(text) == yaml.safe_load(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0x_", "`0x_` is no int (line 1, column 1)"),
        ("a: 2024-99-99", "`2024-99-99` is no timestamp (line 1, column 4)"),
        ("!!int x", "`x` is no int"),
        ("!!int ''", "`` is no int"),
        ("!!bool x", "`x` is no bool"),
        ("!!float x", "`x` is no float"),
        ("!!timestamp x", "`x` is no timestamp"),
        ("9" * 5000, "more) ..."),
        ("0x" + "f" * 5000, "needs more than 64 bits"),
        (str(2**64), "needs more than 64 bits"),
        ("&a [*a]", "`*a` contains itself"),
        ("a: &a {b: {c: *a}}", "`*a` contains itself"),
        ("[" * 1000 + "]" * 1000, f"nested deeper than {MAX_DEPTH}"),
        ("{a: " * 1000, f"nested deeper than {MAX_DEPTH}"),
        (f"a0: &a0 [x]\n{LAUGHS}", f"more than {MAX_VALUES:,} values"),
        (f"a0: &a0 {{x: 1}}\n{MERGES}", f"more than {MAX_VALUES:,} values"),
        (f"a: &a {{x: 1}}\nb: {{<<: [{'*a, ' * 101}]}}", "`<<` joins more than 100 mappings"),
        ('"a\\0b"', "a text with a NUL"),
        ('"\\ud800"', "half a character"),
        ("*nothing", "undefined alias"),
        ("a\0b", "special characters are not allowed"),
        ("[1, 2", "expected ',' or ']'"),
        ("!!python/object/apply:os.system [ls]", "could not determine a constructor"),
        ("? [a]\n: b", "found unhashable key"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_short_line(text: str, says: str) -> None:
    with pytest.raises(NotYamlError) as refused:
        read(text)
    said = str(refused.value)
    assert says in said
    assert len(said) < 500
    assert len(said.splitlines()) == 1
