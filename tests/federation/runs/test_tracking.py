"""TensorBoard events hold what the tables hold, once, also when a run goes on."""

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from fairfal_app.config import FairFALConfig
from federation.config.run_config import RunConfig, default_run_config, parse_run_config
from federation.errors import ConfigError
from federation.runs.resume import open_run
from federation.runs.run_folder import RunFolder
from tests.event_files import scalars


def config(folder: Path, **overrides: Any) -> RunConfig:
    settings = default_run_config() | {
        "train.rounds": 2,
        "output.dir": str(folder),
        "output.tensorboard": True,
    }
    given = {key.replace("__", "."): value for key, value in overrides.items()}
    return parse_run_config(settings | given, FairFALConfig)


def fairfal_round(label_round: int, server_round: int, accuracy: float) -> dict[str, Any]:
    return {
        "label_round": label_round,
        "round": server_round,
        "labelled": 10 * label_round,
        "label_ratio": 0.1 * label_round,
        "accuracy": accuracy,
        "rare_accuracy": math.nan,
        "accuracy_class_0": accuracy / 2,
    }


def query(label_round: int, site: str, model: str | None) -> dict[str, Any]:
    known = {} if model is None else {"gamma": 0.25, "d": 0.5, "s": 0.625}
    row = {"label_round": label_round, "site": site, "gamma": None, "gamma_mean": None, "d": None, "s": None}
    return row | known | {"query_model": model, "budget": 4, "labelled": 4 * label_round, "class_0": 4}


def event(time: float, kind: str, site: str, version: int, staleness: int | None = None) -> dict[str, Any]:
    return {
        "time": time,
        "kind": kind,
        "site": site,
        "job": 0,
        "version": version,
        "staleness": staleness,
        "weight": 1.0,
        "reason": "",
    }


def test_rounds_and_queries(tmp_path: Path) -> None:
    folder, checkpoint = open_run(config(tmp_path), "digits")
    assert checkpoint is None
    for site, model in (("site-0", None), ("site-1", None)):
        folder.append_query(query(1, site, model))
    folder.append_round(fairfal_round(1, 1, 0.25))
    folder.append_round(fairfal_round(1, 2, 0.5))
    for site, model in (("site-0", "global"), ("site-1", "local")):
        folder.append_query(query(2, site, model))
    folder.append_round(fairfal_round(2, 2, 0.75))
    folder.release()
    assert scalars(tmp_path) == {
        "measures/accuracy": [(1, 0.25), (2, 0.5), (4, 0.75)],
        "measures/labelled": [(1, 10.0), (2, 10.0), (4, 20.0)],
        "measures/label_ratio": [(1, 0.1), (2, 0.1), (4, 0.2)],
        "class_accuracy/0": [(1, 0.125), (2, 0.25), (4, 0.375)],
        "label_rounds/accuracy": [(1, 0.5), (2, 0.75)],
        "label_rounds/labelled": [(1, 10.0), (2, 20.0)],
        "label_rounds/label_ratio": [(1, 0.1), (2, 0.2)],
        "gamma/site-0": [(2, 0.25)],
        "gamma/site-1": [(2, 0.25)],
        "d/site-0": [(2, 0.5)],
        "d/site-1": [(2, 0.5)],
        "s/site-0": [(2, 0.625)],
        "s/site-1": [(2, 0.625)],
        "labelled/site-0": [(1, 4.0), (2, 8.0)],
        "labelled/site-1": [(1, 4.0), (2, 8.0)],
        "global_model/site-0": [(2, 1.0)],
        "global_model/site-1": [(2, 0.0)],
    }


EVENTS = [
    event(1.0, "dispatch", "a", 0),
    event(2.0, "arrive", "a", 0, 0),
    event(2.5, "replace", "a", 0, 0),
    event(3.0, "drop", "b", 0, 3),
    event(4.0, "aggregate", "a", 1, 0),
    event(4.0, "aggregate", "b", 1, 3),
    event(4.0, "publish", "", 1),
    event(5.0, "fail", "b", 1),
    event(9.0, "aggregate", "a", 2, 1),
    event(9.0, "publish", "", 2),
]
UPDATES = {
    "updates/staleness": [(1, 1.5), (2, 1.0)],
    "updates/aggregated": [(1, 2.0), (2, 1.0)],
    "updates/replaced": [(1, 1.0), (2, 0.0)],
    "updates/dropped": [(1, 1.0), (2, 0.0)],
    "updates/failed": [(1, 0.0), (2, 1.0)],
}


def test_versions_and_their_updates(tmp_path: Path) -> None:
    settings = config(tmp_path, app="fedraw", strategy__name="fedraw")
    folder, _ = open_run(settings, "digits")
    folder.append_round({"version": 0, "time": 0.0, "accuracy": 0.125})
    folder.append_events(EVENTS[:8])
    folder.append_round({"version": 2, "time": 9.0, "accuracy": 0.5})
    folder.append_events(EVENTS[8:])
    folder.release()
    assert scalars(tmp_path) == UPDATES | {"measures/accuracy": [(0, 0.125), (2, 0.5)]}
    points = EventAccumulator(str(tmp_path / "tensorboard")).Reload().Scalars("measures/accuracy")
    assert points[1].wall_time - points[0].wall_time == pytest.approx(9.0, abs=1e-3)


def test_updates_of_rounds_are_not_stale(tmp_path: Path) -> None:
    folder, _ = open_run(config(tmp_path, app="fedraw"), "digits")
    folder.append_events(EVENTS)
    folder.release()
    assert scalars(tmp_path) == {}


def test_updates_of_label_rounds_are_counted_through(tmp_path: Path) -> None:
    settings = config(tmp_path, strategy__name="fedraw", **{"train__versions": 2})
    folder, _ = open_run(settings, "digits")
    # Of the update that waits when a label round ends the next one knows nothing.
    waits = [event(9.5, "aggregate", "b", 3, 9), event(9.5, "drop", "b", 3, 9)]
    for label_round in (1, 2):
        folder.append_events([{"label_round": label_round} | row for row in [*EVENTS, *waits]])
    folder.release()
    assert scalars(tmp_path) == {
        tag: [*points, *((2 + step, value) for step, value in points)] for tag, points in UPDATES.items()
    }


def test_a_run_that_goes_on_tells_what_its_checkpoint_knows_and_what_follows(tmp_path: Path) -> None:
    settings = config(tmp_path, app="fedraw", strategy__name="fedraw")
    folder, _ = open_run(settings, "digits")
    folder.append_round({"version": 0, "time": 0.0, "accuracy": 0.125})
    folder.append_events(EVENTS[:8])
    folder.checkpoint(lambda: ({}, {}), needed=True)
    folder.append_round({"version": 1, "time": 4.0, "accuracy": 0.9})
    folder.append_round({"version": 2, "time": 9.0, "accuracy": 0.9})
    folder.append_events(EVENTS[8:])
    folder.release()
    again, checkpoint = open_run(
        config(tmp_path, app="fedraw", strategy__name="fedraw", output__dir="", output__resume=str(tmp_path)),
        "digits",
    )
    assert checkpoint is not None
    again.append_events(EVENTS[8:])
    again.append_round({"version": 2, "time": 9.0, "accuracy": 0.5})
    again.release()
    assert scalars(tmp_path) == UPDATES | {"measures/accuracy": [(0, 0.125), (2, 0.5)]}


def test_names_of_sites_stay_text_when_they_are_read_again(tmp_path: Path) -> None:
    folder = RunFolder.create(str(tmp_path), "fairfal", "digits")
    for site in ("007", "NA"):
        folder.append_query(query(2, site, "local"))
    folder.track(config(tmp_path))
    folder.release()
    assert {"gamma/007", "gamma/NA"} < scalars(tmp_path).keys()


def test_plots_and_settings_with_the_last_measures(tmp_path: Path) -> None:
    folder, _ = open_run(config(tmp_path, train__lr=0.25), "digits")
    folder.append_round(fairfal_round(1, 2, 0.5))
    figure = Figure(figsize=(2, 1))
    figure.set_facecolor((1.0, 0.0, 0.0))
    folder.save_figure("curve.png", figure)
    last = fairfal_round(1, 2, 0.5) | {"accuracy_last5": np.float64(0.375)}
    folder.write_summary({"label_rounds": [fairfal_round(1, 1, 0.1), last]}, "finished")
    folder.release()
    found = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    (picture,) = found.Images("plots/curve")
    assert (picture.width, picture.height) == (300, 150)
    assert (
        scalars(tmp_path).items()
        > {
            "final/accuracy": [(0, 0.5)],
            "final/accuracy_last5": [(0, 0.375)],
            "final/labelled": [(0, 10.0)],
            "final/label_ratio": [(0, 0.1)],
            "measures/accuracy": [(2, 0.5)],
        }.items()
    )
    told = found.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    settings = HParamsPluginData.FromString(told).session_start_info.hparams
    assert settings["train.lr"].number_value == 0.25
    assert settings["query.name"].string_value == "fairfal"
    assert settings["query.model"].string_value == "adaptive"
    assert not [key for key in settings if key.startswith("output.")]


def test_without_the_package_a_run_ends_before_it_has_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    for name in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ConfigError, match=r"output\.tensorboard = true needs .*pip install -e .*= false"):
        open_run(config(tmp_path / "run"), "digits")
    assert not (tmp_path / "run").exists()
    open_run(config(tmp_path / "run", output__tensorboard=False), "digits").folder.release()


def test_an_earlier_run_keeps_its_events(tmp_path: Path) -> None:
    folder, _ = open_run(config(tmp_path), "digits")
    folder.append_round(fairfal_round(1, 1, 0.25))
    folder.release()
    open_run(config(tmp_path), "digits").folder.release()
    assert scalars(tmp_path) == {}
    assert scalars(tmp_path / "earlier-1")["measures/accuracy"] == [(1, 0.25)]
