"""What the ServerApp does before it hands the run to an app."""

from types import SimpleNamespace
from typing import Any

import pytest

from fairfal_app.config import FairFALConfig
from federation.config.run_config import default_run_config
from federation.errors import ConfigError, RunFolderError
from rarefl import server_app


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[FairFALConfig]:
    configs: list[FairFALConfig] = []
    monkeypatch.setattr(server_app, "SERVER_RUNS", {"fairfal": lambda grid, config: configs.append(config)})
    return configs


def start(overrides: dict[str, Any]) -> None:
    context = SimpleNamespace(run_config=default_run_config() | overrides)
    server_app.app(None, context)  # type: ignore[arg-type]


def test_what_has_no_effect_is_named(ran: list[FairFALConfig], capsys: pytest.CaptureFixture[str]) -> None:
    start({})
    assert capsys.readouterr().out == ""
    start({"strategy.rarity-weight": 4.0, "output.quiet": True})
    (line,) = capsys.readouterr().out.splitlines()
    assert "strategy.rarity-weight = 4.0 has no effect: it is an option of fedraw" in line
    assert [config.strategy.name for config in ran] == ["fedavg", "fedavg"]


@pytest.mark.parametrize(
    ("overrides", "error"),
    [({"output.dir": "here"}, RunFolderError), ({"query.name": "fairfall"}, ConfigError)],
)
def test_what_is_wrong_stops_the_run(
    ran: list[FairFALConfig], overrides: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        start(overrides)
    assert not ran
