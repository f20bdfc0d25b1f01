"""The files in deploy/: what can be checked of them without containers and without Kubernetes.

That their commands are ours is checked with those of the documentation, in tests/docs.
"""

import importlib.resources
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.benchmarks.processes import offspring
from tests.docs.pages import DEPLOY, ROOT, deployed_commands

FOLDER = ROOT / "deploy"
KUBERNETES = "1.30"
# Of KubeRay's RayJob v1 and what it holds.
OF_A_JOB = {
    "activeDeadlineSeconds", "backoffLimit", "entrypoint", "rayClusterSpec",
    "shutdownAfterJobFinishes", "submissionMode", "ttlSecondsAfterFinished",
}  # fmt: skip
OF_A_CLUSTER = {"rayVersion", "headGroupSpec", "workerGroupSpecs"}
OF_A_GROUP = {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}


def test_every_file_has_commands_of_ours() -> None:
    assert {path.name for path in DEPLOY if any(deployed_commands(path))} == {
        "compose.yaml",
        "ray-cluster.yaml",
        "rayjob.yaml",
        "slurm.sh",
    }


def test_hadolint_has_nothing_to_say_of_the_dockerfile() -> None:
    hadolint = shutil.which("hadolint", path=Path(sys.executable).parent)
    if hadolint is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run([hadolint, FOLDER / "Dockerfile"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_is_given_all_that_the_wheel_is_built_from(tmp_path: Path) -> None:
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)
    names = " ".join(copied).split()
    for name in names:
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, tmp_path / name)
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert list((tmp_path / "dist").glob("*.whl"))


def test_the_image_has_the_versions_of_the_package() -> None:
    wanted = re.findall(r'"((?:torch|torchvision)>=[^"]+)"', (ROOT / "pyproject.toml").read_text())
    assert len(wanted) == 2
    for requirement in wanted:
        assert f'"{requirement}"' in (FOLDER / "Dockerfile").read_text()


def test_pip_meets_aiobotocore_before_boto3() -> None:
    """In the other order pip 25.0, of Python 3.12's image, finds no versions that fit."""
    text = (FOLDER / "Dockerfile").read_text()
    assert text.index('"aiobotocore>=') < text.index('"boto3>=') < text.index('"s3fs>=')


def test_the_image_has_the_driver_of_the_database() -> None:
    command = _documents("compose.yaml")[0]["services"]["mlflow"]["command"]
    (driver,) = re.findall(r"postgresql\+(\w+)://", command)
    assert f'"{driver}[binary]>=' in (FOLDER / "Dockerfile").read_text()


def test_the_compose_file_follows_the_schema() -> None:
    folder = importlib.resources.files("check_jsonschema") / "builtin_schemas" / "vendor"
    schema = json.loads((folder / "compose-spec.json").read_text("utf-8"))
    jsonschema.validate(_documents("compose.yaml")[0], schema)


def test_mlflow_knows_the_options_of_its_service() -> None:
    service = _documents("compose.yaml")[0]["services"]["mlflow"]
    command, name, *words = shlex.split(service["command"])
    told = [sys.executable, "-m", command, name, "--help"]
    known = re.findall(r"--[\w-]+", subprocess.check_output(told, text=True))
    assert {word for word in words if word.startswith("--")} <= {*known}


def test_the_pods_of_the_job_follow_the_schemas_of_kubernetes() -> None:
    claim, job = _documents("rayjob.yaml")
    kubernetes_validate.validate(claim, KUBERNETES, strict=True)
    cluster = job["spec"]["rayClusterSpec"]
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert job["spec"].keys() <= OF_A_JOB
    assert cluster.keys() <= OF_A_CLUSTER
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        assert group.keys() <= OF_A_GROUP
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, **group["template"]}
        kubernetes_validate.validate(pod, KUBERNETES, strict=True)
        (volume,) = group["template"]["spec"]["volumes"]
        assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]


def test_ray_accepts_the_cluster() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = prepare_config(_documents("ray-cluster.yaml")[0])
    validate_config(config)
    assert config["max_workers"] == len(config["provider"]["worker_ips"]) == 3


SLURM = {
    # Drops its own options and is the command, here.
    "srun": 'while [[ "$1" == --* ]]; do shift; done; exec "$@"',
    "scontrol": "echo one; sleep 0.2; echo two",  # whoever reads must not leave before the end
    "hostname": "echo 127.0.0.1",
}


@pytest.mark.ray
def test_the_script_for_slurm_launches_on_all_nodes_of_its_job(tmp_path: Path) -> None:
    """Real Ray on two nodes that are this machine; stand-ins for the commands of Slurm."""
    commands = tmp_path / "commands"
    commands.mkdir()
    for name, text in SLURM.items():
        (commands / name).write_text(f"#!/bin/bash\n{text}\n")
        (commands / name).chmod(0o755)
    given = {
        "PATH": f"{commands}:{os.environ['PATH']}",
        "VENV": sys.prefix,
        "OUTPUT": str(tmp_path / "results"),
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_JOB_NODELIST": "[one,two]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_CPUS_PER_TASK": "1",
    }
    trial = ["--axis", "seed=0,1", "--set", "rounds=1", "--json"]
    # A folder of Ray's own, with a short path for its sockets; Slurm would end what Ray leaves.
    scratch = tempfile.TemporaryDirectory(prefix="fc", ignore_cleanup_errors=True)
    with scratch as ray_folder, offspring():
        done = subprocess.run(
            ["bash", FOLDER / "slurm.sh", *trial],
            env={**os.environ, **given, "RAY_TMPDIR": ray_folder},
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "results" / "trials").iterdir())) == 2
    assert "2 at once" in done.stderr  # a CPU on each of two nodes


def _documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((FOLDER / name).read_text("utf-8")))
