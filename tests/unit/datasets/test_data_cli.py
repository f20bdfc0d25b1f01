import hashlib
import json
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Never

import numpy as np
import pandas as pd
import pytest

from fedcome_ray import datasets
from fedcome_ray.data import main
from fedcome_ray.datasets import packed
from fedcome_ray.datasets.torchvision_import import torchvision_datasets
from tests.unit.datasets.files import columns, femnist_columns, published, write_leaf, write_mnist


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_) -> None:
        pass


PNG = b"\x89PNG"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("FEDCOME_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_list_says_what_is_there(folder, small_datasets, capsys) -> None:
    write_mnist(folder)
    assert main(["list"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    states = {row[1]: row[3] for row in rows if row[0] == "│"}
    assert states["mnist"] == "original"
    assert states["cifar10"] == "missing"
    assert states["digits"] == "none"
    assert len(states) == 7


def test_programs_get_the_list_as_json(folder, small_datasets, capsys) -> None:
    write_mnist(folder)
    assert main(["list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["folder"]
    mnist = next(one for one in found["datasets"] if one["dataset"] == "mnist")
    assert mnist["files"] == "original"
    assert set(mnist) == {"dataset", "files", "training", "test", "classes", "clients"}


def test_import_says_where_no_checksum_is_known(folder, small_datasets, capsys) -> None:
    np.savez(folder / "mine.npz", **columns("cifar100"))
    assert main(["import", "cifar100", "--from", "mine.npz"]) == 0
    assert "cifar100: the sizes are right; no checksum" in capsys.readouterr().out


def test_import_packs_arrays_and_verify_reads_them(folder, small_datasets, capsys) -> None:
    np.savez(folder / "mine.npz", **columns("cifar10"))
    assert main(["import", "cifar10", "--from", "mine.npz"]) == 0
    assert main(["verify"]) == 0
    assert "cifar10: good, 40 training and 20 test examples" in capsys.readouterr().out


def test_verify_names_all_that_is_damaged(folder, small_datasets, capsys) -> None:
    for name in ("mnist", "cifar10", "cifar100"):
        np.savez(folder / "mine.npz", **columns(name))
        assert main(["import", name, "--from", "mine.npz"]) == 0
    for name in ("mnist", "cifar100"):
        packed.pack_path(published(name), folder).write_bytes(b"PK")
    assert main(["verify"]) == 2
    said = capsys.readouterr()
    assert "cifar10: good" in said.out
    assert "mnist" in said.err
    assert "cifar100" in said.err


def test_list_counts_the_writers_that_are_packed(folder, capsys) -> None:
    for side in ("train", "test"):
        write_leaf(folder / "leaf" / "data", side, [{"f1": [1], "f0": [2, 2]}])
    assert main(["import", "femnist", "--from", "leaf"]) == 0
    assert main(["list"]) == 0
    (row,) = (line for line in capsys.readouterr().out.splitlines() if "│ femnist" in line)
    assert row.replace("│", " ").split() == ["femnist", "packed", "3", "3", "62", "2"]


def test_import_says_how_many_writers_there_are(folder, capsys) -> None:
    write_leaf(folder / "leaf" / "data", "train", [{"f1": [1], "f0": [2]}])
    write_leaf(folder / "leaf" / "data", "test", [{"f1": [1], "f0": [2]}])
    assert main(["import", "femnist", "--from", "leaf"]) == 0
    assert "of 2 writers (the paper has 196)" in capsys.readouterr().out


def test_verify_packs_original_files(folder, small_datasets) -> None:
    write_mnist(folder)
    assert main(["verify", "mnist"]) == 0
    assert packed.pack_path(published("mnist"), folder).is_file()


def test_download_gets_and_packs_the_files(folder, small_datasets, monkeypatch, capsys) -> None:
    source = folder / "server"
    write_mnist(source, ".gz")
    mnist = torchvision_datasets().MNIST
    files = sorted(source.iterdir())
    sums = [(path.name, hashlib.md5(path.read_bytes()).hexdigest()) for path in files]
    monkeypatch.setattr(mnist, "resources", sums)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=source)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(mnist, "mirrors", [f"http://127.0.0.1:{server.server_port}/"])
        assert main(["download", "mnist", "--data-dir", "here"]) == 0
        server.shutdown()
    assert "mnist: ready in here, 40 training" in capsys.readouterr().out
    assert packed.pack_path(published("mnist"), folder / "here").is_file()


def test_download_leaves_alone_what_is_packed(folder, small_datasets, capsys) -> None:
    write_mnist(folder)
    main(["verify", "mnist"])
    assert main(["download", "mnist"]) == 0
    assert "mnist: already in" in capsys.readouterr().out


def test_show_prints_a_partition_and_leaves_nothing(folder, capsys) -> None:
    before = sorted(folder.iterdir())
    assert main(["show", "digits", "--set", "data.num_clients=20"]) == 0
    out = capsys.readouterr().out
    assert "digits, classes_per_client, classes 2, num_clients 20" in out
    assert "and 10 more clients" in out
    assert "heterogeneity index" in out
    assert sorted(folder.iterdir()) == before


def test_show_draws_where_it_is_told_to_also_a_users_dataset(folder, capsys) -> None:
    np.savez(folder / "mine.npz", **femnist_columns())
    assert main(["show", "npz:mine.npz", "--out", "picture.png"]) == 0
    assert "picture.png" in capsys.readouterr().out
    assert (folder / "picture.png").read_bytes().startswith(PNG)


def write_csv(path, num_rows=40) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.normal(size=num_rows),
            "ward": rng.choice(["er", "icu"], num_rows),
            "town": rng.choice(["Basel", "Zug"], num_rows),
            "outcome": np.arange(num_rows) % 2 + 1,
        }
    )
    frame.to_csv(path, index=False)
    return frame


OWN = ["import", "csv:mine.csv", "--label", "outcome", "--test-share", "0.25", "--out", "mine.npz"]


def test_a_table_is_imported_shown_and_used(folder, capsys) -> None:
    frame = write_csv(folder / "mine.csv")
    assert main([*OWN, "--client", "town", "--drop", "ward"]) == 0
    out = capsys.readouterr().out
    assert "warning: labels start at 1" in out
    assert "written to mine.npz; use it with --set data.dataset=npz:mine.npz" in out
    assert main(["show", "npz:mine.npz"]) == 0
    shown = capsys.readouterr().out
    assert set(out.splitlines()[1:-1]) <= set(shown.splitlines())
    population = datasets.load(datasets.parse("npz:mine.npz"))
    together = population.train.sizes + population.test.sizes
    assert together.tolist() == frame.town.value_counts().sort_index().tolist()


def test_a_table_without_clients_takes_a_partition(folder, capsys) -> None:
    write_csv(folder / "mine.csv")
    assert main([*OWN, "--drop", "ward", "town", "--relabel"]) == 0
    chosen = ["--set", "data.partition.name=iid", "--set", "data.num_clients=5"]
    assert main(["show", "npz:mine.npz", *chosen]) == 0
    assert "npz:mine.npz, iid, num_clients 5" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--label", "outcom"], "--label: mine.csv has no column `outcom`; did you mean `outcome`"),
        ([], "column `ward`, row 2: expected a number, got"),
        (["--out", "mine.csv"], "--out: expected a name that ends with .npz, got `mine.csv`"),
        (["--out", "/dev/null/mine.npz", "--drop", "ward", "town"], "cannot write /dev/null"),
        (["--from", "x"], "--from: csv:mine.csv says itself where it is from"),
    ],
)
def test_a_table_that_cannot_be_taken_leaves_nothing(folder, capsys, arguments, message) -> None:
    write_csv(folder / "mine.csv")
    assert main([*OWN, *arguments]) == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["mine.csv"]


@pytest.mark.parametrize("seed", ["-1", "0.5", "²", "9" * 400])
def test_a_seed_is_a_whole_number(capsys, seed) -> None:
    with pytest.raises(SystemExit):
        main(["import", "csv:x.csv", f"--seed={seed}"])
    assert "expected a whole number of at least 0" in capsys.readouterr().err


@pytest.mark.parametrize("share", ["0", "1", "half", "nan", "-0.1"])
def test_a_share_for_tests_is_between_zero_and_one(capsys, share) -> None:
    with pytest.raises(SystemExit) as end:
        main(["import", "csv:x.csv", f"--test-share={share}"])
    assert end.value.code == 2
    assert f"expected a number above 0 and below 1, got `{share}`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["import", "mnist"], "mnist: give --from PATH"),
        (["import", "csv:x.csv"], "csv:x.csv: give --label COLUMN"),
        (["import", "csv:x.csv", "--label", "y"], "csv:x.csv: give --out FILE.npz"),
        (["import", "mnist", "--from", "x", "--client", "c"], "--client: for csv:FILE and hf:PATH"),
        (["import", "mnist", "--from", "x", "--normalise"], "--normalise: for csv:FILE"),
        (["import", "mnist", "--from", "x", "--one-hot", "a", "b"], "--one-hot: for csv:FILE"),
        (
            ["import", "cvs:x.csv", "--label", "y"],
            "`cvs:x.csv` is not a dataset with files; allowed: cifar10, cifar100, csv:PATH",
        ),
        (["verify"], "there are no datasets in"),
        (["verify", "mnist"], "the dataset mnist is not in"),
        (["verify", "mnst"], "did you mean `mnist`"),
        (["import", "digits", "--from", "x"], "`digits` is not a dataset with files"),
        (["import", "mnist", "--from", "none.npz"], "cannot read none.npz"),
        (["download", "femnist"], "LEAF's `preprocess.sh"),
        (["show", "cifar10"], "the dataset cifar10 is not in"),
        (["show", "digts"], "did you mean `digits`"),
        (["show", "digits", "--set", "data.partition.name=ring"], "data.partition: "),
        (["show", "digits", "--out", "no/such/folder/x.png"], "cannot write no/such/folder/x.png"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_message_with_exit_code_2(
    capsys, arguments, message
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert message in captured.err
    assert "Traceback" not in captured.err


def test_an_interruption_says_how_to_go_on_with_exit_code_1(monkeypatch, capsys) -> None:
    def interrupt(*_) -> Never:
        raise KeyboardInterrupt

    monkeypatch.setattr(datasets, "load", interrupt)
    assert main(["show", "digits"]) == 1
    assert capsys.readouterr().err == "interrupted; the same command goes on\n"


def test_a_failure_of_the_machine_has_exit_code_1(monkeypatch, capsys) -> None:
    def fail(*_) -> Never:
        raise OSError("no space left")

    monkeypatch.setattr(datasets, "load", fail)
    assert main(["show", "digits"]) == 1
    assert capsys.readouterr().err == "failed: no space left\n"


def test_help_answers_without_loading_torch() -> None:
    code = (
        "import sys; from fedcome_ray.data import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "import json; print(json.dumps('torch' in sys.modules))"
    )
    project = Path(__file__).parents[3]
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=True
    )
    assert "examples:" in out.stdout
    assert json.loads(out.stdout.splitlines()[-1]) is False
