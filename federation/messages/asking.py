"""One request to every client, asked again where it failed, and who was left out in the end."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from federation import records
from federation.errors import AllClientsFailedError
from federation.messages.failures import Failure
from federation.messages.grid import ClientGrid
from federation.messages.hello import meet_again

# Times that a client is asked, and seconds before the second time, which double before each further one.
TRIES = 3
BACK_OFF = 0.5


@dataclass
class Participation:
    """How often clients were asked in queries, how often they answered, and who was left out of what.

    Attributes
    ----------
    left_out
        ``{"label_round", "site", "what", "reason"}`` of each request that stayed without a usable answer.
    """

    asked: int = 0
    answered: int = 0
    left_out: list[dict[str, Any]] = field(default_factory=list)

    def state(self) -> dict[str, Any]:
        """Return everything as JSON."""
        return asdict(self)

    def count(
        self,
        label_round: int,
        kind: str,
        sites: Mapping[str, MetricRecord | None],
        reasons: Mapping[str, str],
    ) -> None:
        """Take a request of this kind to sites, with the answer of each, or None."""
        self.asked += len(sites)
        self.answered += sum(answer is not None for answer in sites.values())
        self.left_out += [
            {"label_round": label_round, "site": site, "what": kind, "reason": reasons.get(site, "no answer")}
            for site, answer in sites.items()
            if answer is None
        ]


def ask(
    clients: ClientGrid,
    kind: str,
    request: Mapping[str, int | float],
    arrays: ArrayRecord | None,
    timeout: float,
    tries: int = 1,
    node_timeout: float = 0.0,
) -> tuple[dict[str, MetricRecord | None], dict[str, str]]:
    """Send one request to every client and return what each answered.

    A client that answered nothing usable is asked again after a pause, at the node that it has then. One that
    did not answer in time is not: its node is still at work, and the time was what the user would wait.

    Parameters
    ----------
    kind
        The message type.
    arrays
        The model that goes with the request, if one does.
    timeout
        Seconds to wait for the answers to one sending.
    tries
        Times that a client is asked.
    node_timeout
        Seconds to wait for the name of a node that has come since.

    Returns
    -------
    The metrics of each site's answer in the order of the sites, None where there is none; and the reasons of
    the failures, by site.

    Raises
    ------
    AllClientsFailedError
        No client answered anything usable.
    DeadWorkerError
        A Ray worker died.
    """
    content = RecordDict({records.CONFIG: ConfigRecord({records.RUN: clients.run_key, **request})})
    if arrays is not None:
        content[records.ARRAYS] = arrays
    answers: dict[str, MetricRecord | None] = {
        clients.site_name(node): None for node in clients.get_node_ids()
    }
    failures: dict[str, Failure] = {}
    nobody: AllClientsFailedError | None = None
    began = len(clients.failures)
    for attempt in range(tries):
        if attempt:
            time.sleep(BACK_OFF * 2 ** (attempt - 1))
            meet_again(clients, node_timeout)
        open_sites = {
            site
            for site, answer in answers.items()
            if answer is None and not (site in failures and failures[site].kind == "time-out")
        }
        nodes = [node for node in clients.get_node_ids() if clients.site_name(node) in open_sites]
        if not nodes:
            break
        told = len(clients.failures)
        try:
            replies = clients.send_and_receive(
                [Message(content, node, kind) for node in nodes], timeout=timeout
            )
        except AllClientsFailedError as error:
            nobody, replies = error, []
        failures |= {failure.site: failure for failure in clients.failures[told:]}
        # A client that fails the same way each time is one failure.
        clients.failures[began:] = dict.fromkeys(clients.failures[began:])
        for reply in replies:
            site = clients.site_name(reply.metadata.src_node_id)
            answers[site] = reply.content.metric_records[records.METRICS]
    if nobody is not None and all(answer is None for answer in answers.values()):
        raise nobody
    return answers, {site: failure.reason for site, failure in failures.items()}
