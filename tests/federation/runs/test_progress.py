"""What a run prints: plain lines, a table, and Flower's own lines only where they warn."""

import io
import logging
import math
import sys
from collections.abc import Iterator

import pytest

from federation.runs import progress
from federation.runs.progress import (
    NOTICE,
    Progress,
    StepProgress,
    clock_text,
    quiet_flower,
    set_up_logging,
    table_text,
)


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
    seconds = iter([100.0, 104.0, 108.0, 117.0, 120.0, 180.0])
    told = Progress(label_rounds=3, steps=2, clock=lambda: next(seconds))
    told.done(1, 1, 0.1004, {"accuracy": 0.9123, "rare": math.nan})
    told.done(1, 2, 0.1004, {})
    told.done(2, 1, 0.2009, {"virtual time": "7.0 s"})
    told.done(2, 2, 0.2009, {})
    told.done(3, 2, 0.3, {"accuracy": 1.0})
    # A step costs 2, 3, 4 in the label rounds 1, 2, 3: 18 in all.
    assert capsys.readouterr().out.splitlines() == [
        "[label round 1/3, 10.0 % labelled, round 1/2] accuracy 0.912 | rare - | 4.0 s a round | "
        "about 0:32 left",
        "[label round 1/3, 10.0 % labelled, round 2/2] 4.0 s a round | about 0:28 left",
        "[label round 2/3, 20.1 % labelled, round 1/2] virtual time 7.0 s | 9.0 s a round | about 0:27 left",
        "[label round 2/3, 20.1 % labelled, round 2/2] 6.0 s a round | about 0:16 left",
        "[label round 3/3, 30.0 % labelled, round 2/2] accuracy 1.000 | 30.0 s a round",
    ]


def test_rounds_of_an_earlier_process_took_none_of_this_ones_time(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging()
    seconds = iter([100.0, 112.0, 130.0])
    told = Progress(3, 10, "version", label_round=2, done=6, clock=lambda: next(seconds))
    told.done(2, 8, 0.2, {})
    told.done(3, 1, 0.3, {})
    # Two versions at 3 took 12 s: 2 * 3 + 10 * 4 = 46 are left. Then 4 * 3 + 4 took 30 s: 36 are left.
    assert capsys.readouterr().out.splitlines() == [
        "[label round 2/3, 20.0 % labelled, version 8/10] 6.0 s a version | about 1:32 left",
        "[label round 3/3, 30.0 % labelled, version 1/10] 18.0 s a version | about 1:48 left",
    ]


def test_a_step_that_was_done_before_has_no_rate(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging()
    Progress(2, 10, label_round=1, done=10).done(1, 10, 0.1, {})
    StepProgress("version", 30, done=30).done(30, {"accuracy": 0.5})
    assert capsys.readouterr().out.splitlines() == [
        "[label round 1/2, 10.0 % labelled, round 10/10] ",
        "[version 30/30] accuracy 0.500",
    ]


def test_a_quiet_run_tells_each_label_round_or_each_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    logger = set_up_logging(quiet=True)
    assert set_up_logging(quiet=True) is logger
    told = Progress(2, 3, clock=lambda: 0.0)
    for label_round in (1, 2):
        for step in (1, 2, 3):
            told.done(label_round, step, 0.1 * label_round, {})
    steps = StepProgress("version", 45, clock=lambda: 0.0)
    for step in (2, 4, 6, 8, 10, 40, 44, 45):
        steps.done(step, {})
    logger.info("nothing")
    logger.log(NOTICE, "results are in /there")
    logger.warning("[a] failed")
    lines = [line.partition("]")[0] for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "[label round 1/2, 10.0 % labelled, round 3/3",
        "[label round 2/2, 20.0 % labelled, round 3/3",
        # Tenths end at 4.5, 9, 13.5, ..., 40.5, 45.
        *("[version 6/45", "[version 10/45", "[version 40/45", "[version 44/45", "[version 45/45"),
        "results are in /there",
        "[a",
    ]


def test_a_line_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging()
    seconds = iter([100.0, 120.0, 160.0])
    told = StepProgress("version", 30, clock=lambda: next(seconds))
    told.done(10, {"virtual time": "12.5 s", "accuracy": 0.25})
    told.done(30, {"accuracy": 0.5})
    assert capsys.readouterr().out.splitlines() == [
        "[version 10/30] virtual time 12.5 s | accuracy 0.250 | 2.0 s a version | about 0:40 left",
        "[version 30/30] accuracy 0.500 | 2.0 s a version",
    ]


def test_steps_of_an_earlier_process_took_none_of_this_ones_time(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging()
    seconds = iter([100.0, 120.0])
    StepProgress("version", 30, done=10, clock=lambda: next(seconds)).done(20, {})
    assert capsys.readouterr().out == "[version 20/30] 2.0 s a version | about 0:20 left\n"


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
