"""What a run prints: plain lines, a table, and Flower's own lines only where they warn."""

import io
import logging
import math
import sys
from collections.abc import Iterator

import pytest

from federation import progress
from federation.progress import Progress, StepProgress, clock_text, quiet_flower, set_up_logging, table_text


@pytest.fixture(autouse=True)
def _logger() -> Iterator[None]:
    logger = progress.logger
    before = logger.level, logger.propagate, list(logger.handlers)
    logger.handlers = []
    yield
    logger.level, logger.propagate, logger.handlers = before
    logger.setLevel(before[0])


def test_lines_are_plain_and_go_where_stdout_is_at_the_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = set_up_logging()
    assert set_up_logging() is logger
    assert len(logger.handlers) == 1
    logger.info("label round %d", 1)
    logger.warning("[a] failed")
    logger.debug("nothing")
    assert capsys.readouterr() == ("label round 1\n[a] failed\n", "")
    later = io.StringIO()
    monkeypatch.setattr(sys, "stdout", later)
    logger.info("later")
    assert later.getvalue() == "later\n"


def test_a_line_a_round(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging()
    seconds = iter([100.0, 103.1, 106.2, 112.0, 500.0])
    told = Progress(label_rounds=5, rounds=20, clock=lambda: next(seconds))
    told.round_done(1, 1, {"accuracy": 0.9123, "balanced": 0.87, "rare": math.nan})
    told.round_done(2, 19)
    told.round_done(2, 20, {})
    told.round_done(5, 20, {"accuracy": 1.0})
    assert capsys.readouterr().out.splitlines() == [
        "[label round 1/5, round 1/20] accuracy 0.912 | balanced 0.870 | rare - | 3.1 s a round | "
        "about 5:07 left",
        "[label round 2/5, round 19/20] 3.1 s a round | about 3:09 left",
        "[label round 2/5, round 20/20] 4.0 s a round | about 4:00 left",
        "[label round 5/5, round 20/20] accuracy 1.000 | 100.0 s a round",
    ]


def test_a_line_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging()
    seconds = iter([100.0, 120.0, 160.0])
    told = StepProgress("version", 30, clock=lambda: next(seconds))
    told.done(10, {"time": 12.5, "rare": math.nan})
    told.done(30, {"accuracy": 0.5})
    assert capsys.readouterr().out.splitlines() == [
        "[version 10/30] time 12.500 | rare - | about 0:40 left",
        "[version 30/30] accuracy 0.500",
    ]


def test_steps_of_an_earlier_process_took_none_of_this_ones_time(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging()
    seconds = iter([100.0, 120.0])
    StepProgress("version", 30, done=10, clock=lambda: next(seconds)).done(20, {})
    assert capsys.readouterr().out == "[version 20/30] about 0:20 left\n"


def test_warnings_of_asynchronous_strategies_stay() -> None:
    strategies = logging.getLogger("flwr.fedraw")
    before = strategies.level
    with quiet_flower():
        assert not strategies.isEnabledFor(logging.INFO)
        assert strategies.isEnabledFor(logging.WARNING)
    assert strategies.level == before


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0:00"),
        (9.6, "0:10"),
        (59.6, "1:00"),
        (80, "1:20"),
        (3599.4, "59:59"),
        (3599.6, "1:00:00"),
        (7325, "2:02:05"),
    ],
)
def test_clock_text(seconds: float, text: str) -> None:
    assert clock_text(seconds) == text


def test_flower_is_quiet_inside_and_as_before_outside() -> None:
    flower = logging.getLogger("flwr")
    level = flower.level
    try:
        for before, inside in [(logging.DEBUG, logging.ERROR), (logging.CRITICAL, logging.CRITICAL)]:
            flower.setLevel(before)
            with quiet_flower():
                assert flower.level == inside
            assert flower.level == before
            with pytest.raises(KeyError), quiet_flower():
                raise KeyError
            assert flower.level == before
    finally:
        flower.setLevel(level)


def test_a_table_of_plain_characters() -> None:
    rows = [("site-00", 12, 0.5), ("[red]", 3, float("nan"))]
    assert table_text(["site", "labels", "accuracy"], rows) == (
        "| site    | labels | accuracy |\n"
        "|---------|--------|----------|\n"
        "| site-00 |     12 |    0.500 |\n"
        "| [red]   |      3 |        - |"
    )
    assert "x" * 300 in table_text(["a"], [["x" * 300]])
