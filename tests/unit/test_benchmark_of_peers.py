"""The benchmark of peers, without the peers: short scripts act as their interpreters."""

import os
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch

from tests import plain_torch
from tests.benchmarks.peers import environments, examples, plain, summary
from tests.benchmarks.peers.__main__ import install, main, take_turns
from tests.benchmarks.peers.measurement import Mark, PeerError, Run, measure, parse, run_of, warm_up
from tests.benchmarks.peers.roster import PEERS, Peer
from tests.benchmarks.peers.task import ROOT, WORKLOADS, Task, Workload
from tests.benchmarks.processes import offspring

SMALL = Workload(
    "small", "small", "mlp",
    num_clients=10, examples_per_client=50, pieces=2, num_test=40, batch_size=10, lr=0.1,
)  # fmt: skip
ROUND = """echo '{"round": '$number', "accuracy": 0.5}'; read _ || true"""
GOOD = f"echo hello; for number in $(seq 20); do {ROUND}; done"
RAISES = f"for number in 1 2; do {ROUND}; done; echo; echo 'KeyError: x' >&2; exit 1"


def run(cpu: float = 1.0, accuracy: float = 0.9) -> Run:
    return Run(cpu, first_round_s=2.0, round20_s=3.0, memory_gb=4.0, accuracy=accuracy)


def measured(script: str, folder: Path, patience: float = 60.0) -> Run:
    return measure(["sh", "-c", script], folder, folder / "log.txt", patience)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"round": 3, "accuracy": 0.25}\n', (3, 0.25)),
        ('{"accuracy": 1, "round": "4", "time": 5}', (4, 1.0)),
        ("INFO: round 3\n", None),
        ('{"round": 3}', None),
        ('["round", "accuracy"]', None),
        ('{"round": null, "accuracy": 1}', None),
        ("null", None),
        ("7", None),
        ("", None),
    ],
)
def test_only_reports_of_rounds_are_read(line: str, expected: tuple[int, float] | None) -> None:
    assert parse(line) == expected


def test_what_happens_before_the_end_of_the_first_round_is_not_in_the_slope() -> None:
    marks = [Mark(n, n / 100, wall=10.0 + n, cpu=100.0 + 0.5 * n) for n in range(1, 21)]
    assert run_of(marks, 3 * 2**30) == Run(0.5, 11.0, 30.0, 3.0, 0.2)  # exact in binary


def test_a_peer_is_followed_to_its_last_round(tmp_path: Path) -> None:
    found = measured(GOOD, tmp_path)
    assert found.accuracy == 0.5
    assert 0 < found.first_round_s <= found.round20_s


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        (RAISES, "ended after 2 rounds: KeyError: x"),
        (GOOD.replace("20", "3"), "ended after 3 rounds: without a word"),
        (f"{GOOD}; exit 7", "ended after 20 rounds: without a word"),
        (GOOD.replace("seq 20", "seq 2 20"), "told of round 2 instead of 1"),
    ],
)
def test_a_peer_that_fails_is_told_in_a_line(script: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(PeerError, match=f"^{complaint}$"):
        measured(script, tmp_path)


def test_a_peer_that_hangs_is_stopped_with_all_it_started(tmp_path: Path) -> None:
    script = "sleep 600 & echo $! > child; sleep 600"
    with pytest.raises(PeerError, match=r"^stopped after 5 s and 0 rounds$"):
        measured(script, tmp_path, patience=5.0)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "child").read_text()), 0)


def test_a_peer_is_warm_after_its_first_round(tmp_path: Path) -> None:
    script = f"touch compiled; {GOOD}; touch ended"
    warm_up(["sh", "-c", script], tmp_path, tmp_path / "log.txt")
    assert (tmp_path / "compiled").exists()
    assert not (tmp_path / "ended").exists()


def test_a_peer_that_fails_while_it_warms_up_is_told_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match=r"^ended after 0 rounds: no such model$"):
        warm_up(["sh", "-c", "echo no such model >&2; exit 1"], tmp_path, tmp_path / "log.txt")


def test_orphans_count_and_are_ended_and_others_are_not(tmp_path: Path) -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass\nopen('done', 'w')\ntime.sleep(600)"
    bystander = subprocess.Popen(["sleep", "600"])
    with offspring() as started:
        orphaning = ["sh", "-c", '"$0" -c "$1" > /dev/null & echo $!', sys.executable, burn]
        said = subprocess.run(orphaning, cwd=tmp_path, stdout=subprocess.PIPE, check=True).stdout
        while not (tmp_path / "done").exists():
            time.sleep(0.01)
        assert started.cpu_seconds() >= 0.28  # the system counts in ticks
        assert started.resident_bytes() > 2**20
    with pytest.raises(ProcessLookupError):
        os.kill(int(said), 0)
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


def test_results_are_medians_beside_the_reference() -> None:
    runs = {"ours": [run(0.4), run(0.5), run(0.6)], "flower": [run(5.0), run(4.0), run(9.0)]}
    results = summary.summarise(runs, {})
    assert results["flower"]["cpu_seconds_per_round"] == 5.0
    assert results["flower"]["cpu_ratio"] == pytest.approx(10.0)
    assert results["flower"]["spread"]["cpu_seconds_per_round"] == [4.0, 9.0]
    assert results["ours"]["cpu_ratio"] == 1.0
    assert not any("error" in one for one in results.values())


@pytest.mark.parametrize("accuracy", [0.1, 0.86, 0.94, float("nan")])
def test_a_peer_with_another_accuracy_is_broken(accuracy: float) -> None:
    runs = {"ours": [run()], "pfl": [run(accuracy=accuracy)], "fluke": [run(accuracy=0.88)]}
    results = summary.summarise(runs, {})
    assert results["pfl"]["error"].startswith("broken: its accuracy is")
    assert "error" not in results["fluke"]


def test_a_failed_peer_is_shown_and_the_others_are_measured() -> None:
    runs = {"ours": [run()], "jax_map": [run(0.5)], "flower": [run()]}
    results = summary.summarise(runs, {"flower": "could not be installed: no | network"})
    assert results["flower"] == {"error": "could not be installed: no | network"}
    names = [line.split(" | ")[0] for line in summary.table(results).splitlines()[2:]]
    assert names == [f"| {PEERS[name].title}" for name in ("jax_map", "ours", "flower")]
    assert "| Flower | could not be installed: no / network |" in summary.table(results)


def test_without_the_reference_there_are_no_ratios(tmp_path: Path) -> None:
    results = summary.summarise({"plain": [run()]}, {"ours": "ended"})
    assert "cpu_ratio" not in results["plain"]
    assert "PyTorch loop, tuned | 1.00 (1.00–1.00) |  |" in summary.table(results)
    none = summary.summarise({}, {"ours": "ended"})
    titles = {"small": "small", "none": "none"}
    summary.draw({"small": results, "none": none}, titles, tmp_path / "chart.png")
    assert (tmp_path / "chart.png").stat().st_size > 0


def test_peers_take_turns_and_go_on_without_one_that_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pythons = {}
    for name, script in (("ours", GOOD), ("pfl", RAISES), ("plain", GOOD)):
        pythons[name] = tmp_path / name
        launches = f"echo {name} >> {tmp_path}/launches"
        pythons[name].write_text(f"#!/bin/sh\n{launches}; {script}\n")
        pythons[name].chmod(0o755)
    peers = [PEERS[name] for name in (*pythons, "jax_map")]
    errors = {"jax_map": "could not be installed"}
    runs = take_turns(peers, SMALL, tmp_path, pythons, errors, 2, logs=tmp_path / "logs")
    assert {name: len(own) for name, own in runs.items()} == {"ours": 2, "plain": 2}
    assert errors["pfl"] == "ended after 2 rounds: KeyError: x"
    turns = [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()]
    expected = ["ours, 1", "pfl, 1", "plain, 1", "ours, 2", "plain, 2"]
    assert turns == [f"small {turn} of 2" for turn in expected]
    in_turn = [*pythons, *pythons, "ours", "plain"]  # the first time to warm up
    assert (tmp_path / "launches").read_text().split() == in_turn


def test_an_environment_that_cannot_be_made_is_an_error_of_its_peer(tmp_path: Path) -> None:
    (tmp_path / "jax").write_text("in the way")
    pythons, missing = install([PEERS["jax_map"], PEERS["plain"]], tmp_path)
    assert pythons == {"plain": Path(sys.executable)}
    assert missing["jax_map"].startswith("could not be installed: Error: ")


def test_an_environment_is_made_once(tmp_path: Path) -> None:
    peer = Peer("good", "good", "good", requirements=("good==1.0",))
    (tmp_path / "good").mkdir()
    made_from = environments.made_from(peer)
    (tmp_path / "good" / environments.MADE_FROM).write_text(made_from)
    assert environments.python_of(peer, tmp_path) == tmp_path / "good" / "bin" / "python"
    assert f"torch=={version('torch')}" in made_from


def test_the_versions_are_those_of_the_environment() -> None:
    assert environments.versions_in(Path(sys.executable))["torch"] == version("torch")


def test_every_peer_has_its_adapter() -> None:
    for peer in PEERS.values():
        assert (ROOT / "tests" / "benchmarks" / "peers" / f"{peer.module}.py").is_file()
    asked_for = [
        "flower",
        "pfl",
        "fluke",
        "jax_vmap",
        "jax_map",
        "plain",
        "ours_in_process",
        "ours",
    ]
    assert set(asked_for) <= set(PEERS)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--peers", "flower,tff"], "no peer `tff`; there are ours, "),
        (["--json", "nowhere/results.json"], "got `nowhere/results.json`"),
        (["--plot", "."], "got `.`"),
    ],
)
def test_a_wrong_request_is_refused_at_once(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert complaint in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("workload", [SMALL, WORKLOADS["cnn"]], ids=lambda one: one.name)
def test_all_peers_get_the_same_examples(
    workload: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDCOME_DATA_DIR", str(tmp_path))
    path, source = examples.write(workload, tmp_path)
    again = examples.write(workload, tmp_path)[0]
    assert source == "invented images"
    task = Task(workload, path, "usual")
    x, y = task.train()
    sizes = workload.num_clients, workload.examples_per_client
    assert x.shape == (*sizes, 1, 28, 28)
    assert y.shape == sizes
    assert 0 <= x.min() < x.max() <= 1
    assert all(len(np.unique(own)) <= 2 * workload.pieces for own in y)
    np.testing.assert_array_equal(x, Task(workload, again, "usual").train()[0])
    params = torch.nn.utils.parameters_to_vector(task.module().parameters())
    np.testing.assert_array_equal(params.detach(), task.start())


def test_the_stacked_round_is_that_of_the_loop() -> None:
    torch_rng = torch.Generator().manual_seed(0)
    x = torch.rand(3, 20, 1, 28, 28, generator=torch_rng)
    y = torch.randint(10, (3, 20), generator=torch_rng)
    module = plain_torch.mlp()
    start = torch.nn.utils.parameters_to_vector(module.parameters()).detach().clone()
    # One batch for each client, so that its order does not matter.
    trained = [plain_torch.train(module, start, [own], 0.1) for own in zip(x, y, strict=True)]
    found = plain.stacked_round(module, start, x, y, batch_size=20, lr=0.1)
    torch.testing.assert_close(found, torch.stack(trained).mean(0), rtol=1e-4, atol=1e-6)
