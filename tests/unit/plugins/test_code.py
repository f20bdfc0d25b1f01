"""What a plugin is written in: results of other code are other results."""

import hashlib
from pathlib import Path

import pytest

from fedcome_ray import methods
from fedcome_ray.errors import UserError
from fedcome_ray.experiments.trial import parse_trial
from fedcome_ray.plugins import load_plugins
from fedcome_ray.registry import Code
from tests.processes import answer_of
from tests.unit.plugins.conftest import Write

PLUGIN = """\
from typing import Literal

import numpy, json
from fedcome_ray.plugins import Hyperparameters, Method, parts
{imports}


class Own(Hyperparameters):
    name: Literal["own"] = "own"


def build(hp):
    {inside}
    return Method(
        parts.only_params, parts.stateless, parts.send_params, parts.uncorrected, parts.keep,
        parts.average,
    )
"""


def plugin(imports: str = "", inside: str = "pass") -> str:
    return PLUGIN.format(imports=imports, inside=inside)


def loaded(file: str) -> Code:
    load_plugins([file])
    code = methods.REGISTRY["own"].code
    assert code is not None
    return code


def test_a_file_that_imports_nothing_of_its_authors_is_known_by_its_own_digest(
    write: Write,
) -> None:
    code = loaded(write(plugin(), "own.py"))
    assert not code.imported
    assert code.digest == hashlib.sha256(plugin().encode()).hexdigest()
    assert parse_trial({"method": {"name": "own"}}).plugin == code.digest


@pytest.mark.parametrize(
    ("imports", "inside", "others", "expected"),
    [
        ("import nets_a", "pass", {"nets_a.py": ""}, {"nets_a.py"}),
        ("", "import nets_b", {"nets_b.py": ""}, {"nets_b.py"}),
        ("from nets_c import f", "pass", {"nets_c.py": "def f(): pass"}, {"nets_c.py"}),
        (
            "from kit_a.nets import f",
            "pass",
            {"kit_a/nets.py": "from kit_a import base\nf = base", "kit_a/base.py": ""},
            {"kit_a/nets.py", "kit_a/base.py"},
        ),
        (
            "from kit_b import nets",
            "pass",
            {"kit_b/__init__.py": "", "kit_b/nets.py": "from . import base", "kit_b/base.py": ""},
            {"kit_b/__init__.py", "kit_b/nets.py", "kit_b/base.py"},
        ),
        (
            "import ring_a",
            "pass",
            {"ring_a.py": "import ring_b", "ring_b.py": "import ring_a", "spare.py": ""},
            {"ring_a.py", "ring_b.py"},
        ),
        ("try:\n    import nowhere_at_all\nexcept ImportError:\n    pass", "pass", {}, set()),
    ],
)
def test_what_a_plugin_imports_of_its_authors_counts(
    write: Write, imports: str, inside: str, others: dict[str, str], expected: set[str]
) -> None:
    for name, text in others.items():
        write(text, name)
    code = loaded(write(plugin(imports, inside), "own.py"))
    assert set(code.imported) == expected
    assert set(code.files) == expected | {"own.py"}


def test_an_edit_of_what_is_imported_makes_another_trial(write: Write) -> None:
    """In processes of their own, as commands are."""
    file = write(plugin("import nets_d"), "own.py")
    say = (
        "from fedcome_ray.plugins import load_plugins\n"
        "from fedcome_ray.experiments.trial import parse_trial\n"
        f"load_plugins([{file!r}])\n"
        "import json; print(json.dumps(parse_trial({'method': {'name': 'own'}}).key))"
    )
    keys = []
    for text in ("x = 1", "x = 2", "x = 1"):
        write(text, "nets_d.py")
        keys.append(answer_of(say))
    assert keys[0] == keys[2] != keys[1]


def test_an_import_that_was_edited_while_python_runs_is_refused(write: Write) -> None:
    write("x = 1", "nets_e.py")
    file = write(plugin("import nets_e"), "own.py")
    loaded(file)
    write("x = 2", "nets_e.py")
    with pytest.raises(UserError, match="`nets_e` was edited since it was loaded"):
        load_plugins([file])


def test_two_modules_of_one_name_are_refused(write: Write) -> None:
    write("x = 1", "one/nets_f.py")
    write("x = 2", "two/nets_f.py")
    loaded(write(plugin("import nets_f"), "one/own.py"))
    other = write(plugin("import nets_f").replace("own", "other"), "two/other.py")
    with pytest.raises(UserError, match=r"imports `nets_f`, which is .*one.*; rename that file"):
        load_plugins([other])


def test_an_import_that_fails_is_told_and_can_be_corrected(write: Write) -> None:
    write("1 / 0", "nets_g.py")
    file = write(plugin("import nets_g"), "own.py")
    with pytest.raises(UserError, match=r"ZeroDivisionError: .*own\.py, line 5"):
        load_plugins([file])
    write("x = 1", "nets_g.py")
    assert set(loaded(file).imported) == {"nets_g.py"}


def test_kept_code_can_be_loaded_and_has_the_same_digest(write: Write, tmp_path: Path) -> None:
    write("x = 1", "kit_h/nets.py")
    code = loaded(write(plugin("from kit_h.nets import x"), "own.py"))
    for name, text in code.files.items():
        path = tmp_path / "kept" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    say = (
        "from fedcome_ray import methods\n"
        "from fedcome_ray.plugins import load_plugins\n"
        f"load_plugins([{str(tmp_path / 'kept' / 'own.py')!r}])\n"
        "import json; print(json.dumps(methods.REGISTRY['own'].code.digest))"
    )
    assert answer_of(say) == code.digest
