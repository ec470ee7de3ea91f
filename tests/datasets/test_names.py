import pytest

from datasets.names import did_you_mean, nearest, unknown

NAMES = ("fedavg", "FedProx", "fedraw")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("fedrow", "fedraw"),
        ("FEDAVG", "fedavg"),
        ("fedprox", "FedProx"),
        ("fedavg ", "fedavg"),
        ("scaffold", None),
        ("", None),
    ],
)
def test_the_nearest_name_is_known_whatever_the_letter_case(name: str, near: str | None) -> None:
    assert nearest(name, NAMES) == near


def test_of_names_that_differ_in_letter_case_the_first_is_meant() -> None:
    assert nearest("nv", ["NV", "nv"]) == "NV"


def test_hints_and_sentences() -> None:
    assert did_you_mean("fedrow", NAMES) == " (did you mean 'fedraw'?)"
    assert did_you_mean("zzz", NAMES) == ""
    assert (
        unknown("strategy", "fedrow", NAMES)
        == "there is no strategy 'fedrow'; did you mean 'fedraw'? (there are fedavg, FedProx, fedraw)"
    )
    assert unknown("strategy", "zzz", iter(NAMES)) == (
        "there is no strategy 'zzz' (there are fedavg, FedProx, fedraw)"
    )
