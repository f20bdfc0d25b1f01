"""Folders that users give."""

from pathlib import Path

import pytest

from fedcome_ray.console.options import Locations
from fedcome_ray.console.paths import (
    check_data_dir,
    check_file,
    check_output,
    find_output,
    open_output,
    tracking_uri,
)
from fedcome_ray.errors import UserError
from fedcome_ray.storage.remote import Remote


def test_the_output_folder_is_made(tmp_path: Path) -> None:
    assert check_output(tmp_path / "new" / "folder").is_dir()


def test_the_output_folder_is_its_users_alone_unless_it_was_there(tmp_path: Path) -> None:
    assert check_output(tmp_path / "new").stat().st_mode & 0o777 == 0o700
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o755)
    assert check_output(tmp_path / "shared").stat().st_mode & 0o777 == 0o755


def test_no_folder_at_all_is_refused() -> None:
    with pytest.raises(UserError, match="--output: got ``, expected a folder"):
        find_output("")


def test_a_home_of_nobody_is_refused() -> None:
    with pytest.raises(UserError, match="--output: `~no such user/x`"):
        check_output(Path("~no such user/x"))


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"--output: cannot write to .*file"):
        check_output(tmp_path / "file")


def test_results_do_not_go_where_ray_deletes_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    copy = tmp_path / "runtime_resources" / "working_dir_files" / "_ray_pkg_1"
    copy.mkdir(parents=True)
    monkeypatch.chdir(copy)
    with pytest.raises(UserError, match=r"--output: .*Ray makes for a job, and deletes"):
        check_output(Path("results"))
    assert not (copy / "results").exists()


def test_a_data_folder_must_be_there_if_it_is_given(tmp_path: Path) -> None:
    assert check_data_dir(None) is None
    assert check_data_dir(tmp_path) == tmp_path
    with pytest.raises(UserError, match="--data-dir: cannot read"):
        check_data_dir(tmp_path / "nothing")


def test_the_store_is_in_the_output_folder_unless_another_is_given(tmp_path: Path) -> None:
    assert tracking_uri(None, tmp_path) == f"sqlite:///{tmp_path}/mlflow.db"
    assert tracking_uri("http://host:5000", tmp_path) == "http://host:5000"


@pytest.mark.parametrize("name", ["a?b", "a%20b"])
def test_a_folder_that_an_address_cannot_hold_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="--output"):
        tracking_uri(None, Path(name))


def test_a_storage_has_a_working_copy_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    one, other = find_output("s3://bucket/a-b/"), find_output("s3://bucket/a/b")
    assert one.storage == Remote("s3://bucket/a-b")
    assert one.folder.is_relative_to(tmp_path)
    assert one.folder != other.folder  # though they look alike
    assert tracking_uri(None, one.folder).endswith("mlflow.db")
    assert find_output(tmp_path) == (tmp_path, None)


def test_what_is_in_a_storage_is_shown_by_its_address(tmp_path: Path) -> None:
    there = Locations(tmp_path, "", storage=Remote("s3://bucket/x"))
    assert there.shown(tmp_path) == "s3://bucket/x"
    assert there.shown(tmp_path / "trials" / "one") == "s3://bucket/x/trials/one"
    assert there.shown(Path("/else")) == "/else"
    assert Locations(tmp_path, "").shown(tmp_path / "trials") == f"{tmp_path}/trials"


def test_a_storage_is_tried_before_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    there = (tmp_path / "there").as_uri()
    assert open_output(there).folder.is_dir()
    with pytest.raises(UserError, match="--output: cannot use `no://where`"):
        open_output("no://where")


def test_a_file_to_write_needs_a_folder_that_takes_files(tmp_path: Path) -> None:
    check_file(tmp_path / "new.yaml", "--best")
    (tmp_path / "old.yaml").write_text("old")
    check_file(tmp_path / "old.yaml", "--best")
    assert [one.name for one in tmp_path.iterdir()] == ["old.yaml"]
    with pytest.raises(UserError, match=r"--best: cannot write `/proc/new\.yaml`"):
        check_file(Path("/proc/new.yaml"), "--best")
