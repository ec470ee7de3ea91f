"""``kill -9`` of SuperLink, ServerApp and Ray worker in Flower's simulation, and how the run goes on."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import psutil
import pytest
import tomli_w
import torch

from rarefl.superlink import HOME_MARK, LocalSuperLink, RunOutcome
from tests.integration.conftest import copy_project, run_in_this_process

CONFIG = {
    "data": {"clients": 3, "alpha": 0.5},
    "train": {"rounds": 2, "local-epochs": 1, "local-only-epochs": 2},
    "query": {"last-label-ratio": 0.2},
    "evaluate": {"every": 1},
}
# The last client waits in its work as long as a file is there, and says so by another.
HOLD = """
def _hold(message: Message, context: Context, place: dict) -> None:
    import pathlib
    import time

    request = message.content.config_records[records.CONFIG]
    here = context.node_config["partition-id"] == 2 and all(request.get(key) == place[key] for key in place)
    file = pathlib.Path({file!r}.format(message.metadata.message_type))
    while here and file.exists():
        file.with_suffix(".reached").touch()
        time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def holds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("holds")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, holds: Path) -> Path:
    """The project, whose last client stops in the second round of training and twice in the second query."""
    project = copy_project(tmp_path_factory.mktemp("projects") / "rarefl")
    client = project / "fairfal_app" / "client_app.py"
    source = client.read_text() + HOLD.replace("{file!r}", repr(str(holds / "{}.hold")))
    for line, place in (
        ('    """Train on the labelled images."""\n', {"label-round": 1, "server-round": 2}),
        (
            '    """Train the local-only model and answer with gamma_k and d_k, as far as this client has '
            'them."""\n',
            {"label-round": 2},
        ),
        ('    """Choose images, have them labelled and answer with counts."""\n', {"label-round": 2}),
    ):
        assert line in source
        source = source.replace(line, f"{line}    _hold(message, context, {place})\n")
    client.write_text(source)
    return project


@pytest.fixture(scope="module")
def superlink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSuperLink]:
    with LocalSuperLink(tmp_path_factory.mktemp("home")) as superlink:
        yield superlink


def submit(
    superlink: LocalSuperLink, project: Path, file: Path, output: dict[str, str], lines: list[str]
) -> RunOutcome:
    file.write_text(tomli_w.dumps(CONFIG | {"output": output}))
    resources = "num-supernodes=3 client-resources-num-cpus=1 init-args-num-cpus=1"
    return superlink.submit(project, file, resources, lines.append)


def run_until_held(
    superlink: LocalSuperLink, project: Path, file: Path, output: dict[str, str], hold: Path
) -> threading.Thread:
    """Start a run and return when its last client is held; the thread ends with the run."""
    lines: list[str] = []
    run = threading.Thread(target=submit, args=(superlink, project, file, output, lines), daemon=True)
    run.start()
    reached, deadline = hold.with_suffix(".reached"), time.monotonic() + 400
    while not reached.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert reached.exists(), "\n".join(lines)
    return run


def kill_worker() -> None:
    """Kill the one Ray worker of the clients of the one run below this process."""
    processes = psutil.Process().children(recursive=True)
    (worker,) = (each for each in processes if "".join(each.cmdline()).startswith("ray::ClientAppActor"))
    worker.kill()


def kill(superlink: LocalSuperLink, name: str = "") -> None:
    """Kill the processes of a SuperLink whose command has this name, its own among them."""
    for process in psutil.process_iter():
        try:
            if process.environ().get(HOME_MARK) == str(superlink.home) and name in " ".join(
                process.cmdline()
            ):
                os.kill(process.pid, signal.SIGKILL)
        except (psutil.Error, ProcessLookupError):
            continue
    while not name and superlink.running:
        time.sleep(0.02)


def test_a_run_goes_on_after_three_kills(
    superlink: LocalSuperLink, project: Path, holds: Path, tmp_path: Path, state_folder: Path
) -> None:
    folder, file = tmp_path / "run", tmp_path / "run.toml"
    training, estimate, query = (
        holds / f"{name}.hold" for name in ("train", "query.estimate", "query.select")
    )
    for hold in (training, estimate, query):
        hold.touch()

    run_until_held(superlink, project, file, {"dir": str(folder)}, training)
    kill(superlink)
    assert pd.read_csv(folder / "rounds.csv")["round"].tolist() == [1]
    training.unlink()

    run = run_until_held(superlink, project, file, {"resume": str(folder)}, estimate)
    kill_worker()
    run.join()
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "failed"
    assert summary["reason"].startswith("DeadWorkerError: query.estimate in label round 2: the Ray worker")
    estimate.unlink()

    run_until_held(superlink, project, file, {"resume": str(folder)}, query)
    kill(superlink, "flwr-simulation")
    assert json.loads((folder / "summary.json").read_text())["status"] == "running"
    assert pd.read_csv(folder / "queries.csv")["label_round"].tolist() == [1, 1, 1]
    key = json.loads((folder / "checkpoint" / "run.json").read_text())["key"]
    stores = [json.loads((state_folder / key / f"site-0{i}" / "labels.json").read_text()) for i in range(3)]
    assert [set(store["queried-rounds"]) for store in stores] == [{1, 2}, {1, 2}, {1}]  # half a query
    query.unlink()

    lines: list[str] = []
    outcome = submit(superlink, project, file, {"resume": str(folder)}, lines)
    assert outcome.completed, "\n".join(lines)
    run_in_this_process(CONFIG, tmp_path / "undisturbed")
    for table in ("queries.csv", "rounds.csv"):
        assert (folder / table).read_bytes() == (tmp_path / "undisturbed" / table).read_bytes()
    arrays, others = (
        torch.load(each / "final.pt", weights_only=True) for each in (folder, tmp_path / "undisturbed")
    )
    assert all(torch.equal(arrays[name], others[name]) for name in arrays)
    # The third session came to no checkpoint, so nothing of it is left.
    assert len(json.loads((folder / "summary.json").read_text())["provenance"]["sessions"]) == 3
