import shutil
from pathlib import Path

import pytest

from fedcome_ray.tracking.store import open_store
from tests.unit.tracking.stores import TAGS, uri_of, write_folder


@pytest.fixture(scope="session")
def ready_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that exists already: MLflow needs seconds to make one."""
    folder = tmp_path_factory.mktemp("store")
    open_store(uri_of(folder / "mlflow.db"), "other", folder, TAGS)
    return folder / "mlflow.db"


@pytest.fixture
def database(ready_database: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(ready_database, tmp_path / "mlflow.db"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_folder(tmp_path / "trial")
    return tmp_path / "trial"
