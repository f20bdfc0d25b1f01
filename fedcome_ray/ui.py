"""Look at the results in MLflow: `python -m fedcome_ray.ui`."""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from fedcome_ray.console import arguments
from fedcome_ray.console.exits import OK, guarded
from fedcome_ray.console.paths import Output, check_store, find_output
from fedcome_ray.errors import FedcomeError, UserError
from fedcome_ray.tracking.views import SEEDS, saved_view_tags, view_url

HOST = "127.0.0.1"
PATIENCE = 180.0  # seconds; a busy machine takes one minute to import MLflow's server
EXAMPLES = """\
examples:
  python -m fedcome_ray.ui
  python -m fedcome_ray.ui --output results --port 5001

Stop it with Ctrl-C. Only this machine can reach it.
"""


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    return guarded(lambda: _main(find_output(args.output), args.port))


def _parser() -> argparse.ArgumentParser:
    parser = arguments.command(
        "fedcome_ray.ui",
        "Start MLflow's pages for a folder of results, with views made for its grids.",
        EXAMPLES,
    )
    arguments.add_output_argument(parser)
    parser.add_argument("--port", type=arguments.positive_int, default=5000, help="default: 5000")
    return parser


def _main(output: Output, port: int) -> int:
    store = check_store(output)
    _check_port(port)
    server = f"http://{HOST}:{port}"
    log = output.folder / "logs" / "ui.log"
    log.parent.mkdir(exist_ok=True)
    _say(f"starting MLflow at {server}, log in {log} ...")
    with log.open("ab") as file, _start(store, port, file) as process:
        try:
            _wait_until_healthy(server, process, log)
            for grid, experiment_id in _add_views(server).items():
                _say(f"{grid:24} {view_url(server, experiment_id, SEEDS)}")
            _say("stop with Ctrl-C")
            process.wait()
        except KeyboardInterrupt:
            _say("stopped")
        finally:
            process.terminate()
    return OK


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError) as error:
            raise UserError(f"--port: cannot use {port}: {error}; choose another") from None


def _start(store: Path, port: int, log: Any) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--backend-store-uri",
        f"sqlite:///{store}",
    ]
    command += ["--host", HOST, "--port", str(port), "--workers", "1"]
    # A page of another site, open in the same browser, must neither read nor change results.
    own = [f"{name}:{port}" for name in (HOST, "localhost")]
    command += ["--allowed-hosts", ",".join(own), "--x-frame-options", "DENY"]
    command += ["--cors-allowed-origins", ",".join(f"http://{one}" for one in own)]
    # Its job runner would take a gigabyte and a minute, for features of language models.
    environment = os.environ | {
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE": "false",
    }
    return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


def _wait_until_healthy(server: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        try:
            urllib.request.urlopen(f"{server}/health", timeout=2).close()  # nosec B310
        except OSError:
            time.sleep(0.5)
        else:
            return
    raise FedcomeError(f"MLflow did not start; see {log}")


def _add_views(server: str) -> dict[str, str]:
    """Give every grid the saved views, older stores too; experiment ids by grid."""
    answer = _post(server, "search", {"max_results": 1000})
    grids = {e["name"]: e["experiment_id"] for e in answer["experiments"] if e["name"] != "Default"}
    for experiment_id in grids.values():
        for key, value in saved_view_tags().items():
            tag = {"experiment_id": experiment_id, "key": key, "value": value}
            _post(server, "set-experiment-tag", tag)
    return grids


def _post(server: str, action: str, content: dict[str, Any]) -> Any:
    request = urllib.request.Request(
        f"{server}/api/2.0/mlflow/experiments/{action}",
        data=json.dumps(content).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:  # nosec B310
        return json.load(answer)


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
