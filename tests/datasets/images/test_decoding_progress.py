"""How far the decoding has come, on a terminal and in a log."""

import io
import logging

import pytest
from rich.console import Console

from datasets.images.decoding_progress import decoding_progress


def test_a_log_gets_a_line_every_thirty_seconds(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    output = io.StringIO()
    with (
        caplog.at_level(logging.INFO, logger="rarefl"),
        decoding_progress("ham10000", 100, Console(file=output), lambda: now) as done,
    ):
        for _ in range(100):
            now += 1
            done()
    assert caplog.messages == [
        "ham10000: 30 of 100 images decoded, about 70 s left",
        "ham10000: 60 of 100 images decoded, about 40 s left",
        "ham10000: 90 of 100 images decoded, about 10 s left",
    ]
    assert output.getvalue() == ""


def test_a_terminal_gets_a_bar(caplog: pytest.LogCaptureFixture) -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=80)
    with (
        caplog.at_level(logging.INFO, logger="rarefl"),
        decoding_progress("ham10000", 2, console, lambda: 0.0) as done,
    ):
        done()
        done()
    assert "ham10000: decoding images" in output.getvalue()
    assert "2/2" in output.getvalue()
    assert caplog.messages == []
