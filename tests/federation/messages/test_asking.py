"""One request to every client: who is asked again, and what is kept of it."""

import itertools
from collections.abc import Callable

import pytest
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from federation import records
from federation.errors import AllClientsFailedError
from federation.messages import asking
from federation.messages.asking import Participation, ask
from federation.messages.grid import ClientGrid, Site
from tests.inprocess import InProcessGrid

REQUEST = {records.LABEL_ROUND: 2}


class Counting(ClientApp):
    """Answers an estimate with the number of times that the client was asked, unless ``fails`` raises."""

    def __init__(self, fails: Callable[[int, int], None]) -> None:
        super().__init__()
        self.fails = fails
        self.asked = {partition: itertools.count(1) for partition in range(3)}

    def __call__(self, message: Message, context: Context) -> Message:
        partition = int(context.node_config["partition-id"])
        time = next(self.asked[partition])
        self.fails(partition, time)
        metrics = MetricRecord({records.GAMMA: time / 10})
        return Message(RecordDict({records.METRICS: metrics}), reply_to=message)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "BACK_OFF", 0.001)


def grid(fails: Callable[[int, int], None], latency: Callable[[Message], float] | None = None) -> ClientGrid:
    inner = InProcessGrid(Counting(fails), 3, workers=3, latency=latency)
    return ClientGrid(inner, [Site(1000 + i, f"site-{i}") for i in range(3)], run_key="run")


def gammas(clients: ClientGrid, tries: int = 3, timeout: float = 30.0) -> dict[str, object]:
    answers, _ = ask(clients, records.ESTIMATE, REQUEST, None, timeout, tries)
    return {site: None if answer is None else answer[records.GAMMA] for site, answer in answers.items()}


def test_only_who_failed_is_asked_again_and_answers_stand_in_the_order_of_the_sites() -> None:
    def fails(partition: int, time: int) -> None:
        if partition == 0 and time < 3:
            raise OSError("disk busy")

    clients = grid(fails)
    answered = gammas(clients)
    assert list(answered.items()) == [("site-0", 0.3), ("site-1", 0.1), ("site-2", 0.1)]
    assert [failure.site for failure in clients.failures] == ["site-0"]  # the same failure twice is one


def test_all_may_fail_at_first() -> None:
    def fails(partition: int, time: int) -> None:
        if time == 1 or partition == 2:
            raise OSError(f"disk busy, time {time}")

    clients = grid(fails)
    assert gammas(clients) == {"site-0": 0.2, "site-1": 0.2, "site-2": None}
    assert [failure.site for failure in clients.failures].count("site-2") == 3


def test_when_nobody_answers_at_last_that_is_an_error() -> None:
    def fails(partition: int, time: int) -> None:
        raise OSError("disk full")

    with pytest.raises(AllClientsFailedError, match="disk full"):
        gammas(grid(fails))
    with pytest.raises(AllClientsFailedError, match="disk full"):
        gammas(grid(fails), tries=1)


def test_who_did_not_answer_in_time_is_not_asked_again() -> None:
    clients = grid(lambda partition, time: None, lambda message: message.metadata.dst_node_id == 1001 and 1.0)
    assert gammas(clients, timeout=0.3) == {"site-0": 0.1, "site-1": None, "site-2": 0.1}
    assert [(failure.site, failure.kind) for failure in clients.failures] == [("site-1", "time-out")]


def test_participation_counts_requests_and_names_who_was_left_out() -> None:
    books = Participation()
    books.count(1, records.SELECT, {"a": MetricRecord(), "b": MetricRecord()}, {})
    books.count(2, records.SELECT, {"a": MetricRecord(), "b": None}, {"b": "OSError: disk full"})
    left_out = {"label_round": 2, "site": "b", "what": records.SELECT, "reason": "OSError: disk full"}
    assert books.state() == {"asked": 4, "answered": 3, "left_out": [left_out]}
    assert Participation(**books.state()) == books
