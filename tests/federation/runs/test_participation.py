"""The line that tells who took part in the queries of a run."""

from typing import Any

import pytest

from federation.runs.participation import all_answered, participation_line


def left_out(*places: tuple[str, int]) -> list[dict[str, Any]]:
    return [
        {"site": site, "label_round": label_round, "what": "query.select", "reason": "killed"}
        for site, label_round in places
    ]


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (None, ""),
        ({}, ""),
        ({"asked": 1, "answered": 1, "left_out": []}, "asked once, answered 1"),
        (
            {"asked": 50, "answered": 49, "left_out": left_out(("site-3", 2))},
            "asked 50 times, answered 49; site-3 left out of label round 2",
        ),
        (
            {
                "asked": 9,
                "answered": 4,
                "left_out": left_out(("b", 3), ("b", 1), ("a", 2), ("b", 3), ("b", 2)),
            },
            "asked 9 times, answered 4; a left out of label round 2; b left out of label rounds 1, 2 and 3",
        ),
        (
            {"asked": 20, "answered": 13, "left_out": left_out(*((f"s{place}", 1) for place in range(7)))},
            "asked 20 times, answered 13; "
            + "; ".join(f"s{place} left out of label round 1" for place in range(5))
            + "; 2 more sites left out",
        ),
    ],
)
def test_line(told: dict[str, Any] | None, line: str) -> None:
    assert participation_line(told) == line


def test_whether_all_answered() -> None:
    assert all_answered(None)
    assert all_answered({"asked": 5, "answered": 5, "left_out": []})
    assert not all_answered({"asked": 5, "answered": 4, "left_out": []})
    assert not all_answered({"asked": 5, "answered": 5, "left_out": left_out(("a", 1))})
