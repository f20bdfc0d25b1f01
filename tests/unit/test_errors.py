"""Texts for messages."""

import pytest

from fedcome_ray.errors import without_passwords


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at https://me:secret@host:5000/path", "at https://***@host:5000/path"),
        ("postgresql://me:se@cret@host/db", "postgresql://***@host/db"),
        ("postgresql://host/db?user=me&password=secret&x=1", "***&x=1"),
        ("http://host:5000/a@b", "http://host:5000/a@b"),
        ("sqlite:////home/me/mlflow.db", "sqlite:////home/me/mlflow.db"),
    ],
)
def test_passwords_in_addresses_are_not_shown(text: str, shown: str) -> None:
    assert without_passwords(text).endswith(shown)
    assert "cret" not in without_passwords(text)
