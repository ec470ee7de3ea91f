"""The start of a run: how many nodes, who they are, and whether they run the same code."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.superlink.grid import InMemoryGrid

from federation.errors import AllClientsFailedError, ConfigError, NodesMissingError, SourceMismatchError
from federation.messages import hello
from federation.messages.grid import ClientGrid
from federation.messages.hello import ClientSite, devices_text, say_hello, wait_for_nodes
from tests.inprocess import InProcessGrid

DIGEST, ROOT = "f" * 64, Path("/apps/rarefl")


def clients(
    names: list[str],
    digests: dict[int, tuple[str, str]] | None = None,
    failing: Iterable[int] = (),
    partitions: list[int] | None = None,
) -> ClientGrid:
    """Return a grid of clients of these names; ``digests`` are fingerprints and paths that differ."""
    app = ClientApp()

    @app.query("hello")
    def _(message: Message, context: Context) -> Message:
        index = int(context.node_config["partition-id"])  # type: ignore[arg-type]
        if index in failing:
            raise ValueError(f"partition-id = {index} is not allowed")
        digest, source = (digests or {}).get(index, (DIGEST, str(ROOT)))
        identity = {"site": names[index], "device": "cpu", "fingerprint": digest, "source": source}
        partition = index if partitions is None else partitions[index]
        content = RecordDict(
            {
                "config": ConfigRecord(identity | {"partition-id": partition}),
                "metrics": MetricRecord(
                    {"pool-size": 10 + index, "num-labelled": index, "label-coverage": [1, 0, index % 2]}
                ),
            }
        )
        return Message(content, reply_to=message)

    return ClientGrid(InProcessGrid(app, len(names)))


class Nodes(InMemoryGrid):
    """Flower's simulated grid, of which only the nodes matter."""

    def __init__(self, found: list[int]) -> None:
        self.found = found

    def get_node_ids(self) -> list[int]:
        return self.found


class Arriving(InProcessGrid):
    """Nodes that connect one at a time, one a poll."""

    def get_node_ids(self) -> list[int]:
        self.shown = min(getattr(self, "shown", 0) + 1, len(self.contexts))
        return list(self.contexts)[: self.shown]


@pytest.fixture(autouse=True)
def _fast_and_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hello, "source_fingerprint", lambda: (DIGEST, ROOT))
    monkeypatch.setattr(hello, "POLL_SECONDS", 0.002)
    monkeypatch.setattr(hello, "STEADY_SECONDS", 0.02)


def test_nodes_are_returned_once_all_are_there() -> None:
    assert wait_for_nodes(ClientGrid(Arriving(ClientApp(), 4)), 4, timeout=30) == [1000, 1001, 1002, 1003]


@pytest.mark.parametrize("found", [3, 7])
def test_a_simulation_with_another_number_of_nodes_fails_at_once(found: int) -> None:
    grid = ClientGrid(Nodes(list(range(found))))
    assert grid.simulated
    with pytest.raises(NodesMissingError) as caught:
        wait_for_nodes(grid, 5, timeout=3600)
    assert str(caught.value) == (
        f"found {found} of 5 clients after 0 s: data.clients = 5, and the simulation has {found}. "
        f'Start the run with --federation-config "num-supernodes=5 client-resources-num-cpus=1", '
        f"or set data.clients = {found}"
    )


def test_too_few_supernodes() -> None:
    with pytest.raises(NodesMissingError) as caught:
        wait_for_nodes(clients(["a", "b"]), 3, timeout=0.01)
    for part in (
        "found 2 of 3 clients",
        "Start 1 more",
        "flwr supernode list",
        "nodes.timeout",
        "data.clients",
    ):
        assert part in str(caught.value)


def test_too_many_supernodes() -> None:
    with pytest.raises(NodesMissingError) as caught:
        wait_for_nodes(clients(["a", "b", "c"]), 2, timeout=0.01)
    for part in ("found 3 of 2 clients", "Stop 1 of them", "set data.clients = 3"):
        assert part in str(caught.value)


def test_sites_are_sorted_by_name_and_handed_to_the_grid() -> None:
    grid = clients(["site-10", "b", "site-9", "a"])
    federation = say_hello(grid, 4, timeout=10)
    assert [site.name for site in federation.sites] == ["a", "b", "site-9", "site-10"]
    assert [site.node_id for site in federation.sites] == [1003, 1001, 1002, 1000]
    assert [site.pool_size for site in federation.sites] == [13, 11, 12, 10]
    assert federation.sites[0].label_coverage == (1, 0, 1)
    assert federation.sites[0].device == "cpu"
    assert len(federation) == 4
    assert grid.sites == federation.sites
    assert grid.get_node_ids() == [1003, 1001, 1002, 1000]


def test_names_with_digits_sort_as_numbers_and_never_tie() -> None:
    names = ["s2b10", "s2b9", "s02", "s2", "", "9", "10", "s²"]
    ordered = sorted(names, key=hello._natural)
    names.reverse()
    assert ordered == sorted(names, key=hello._natural)
    assert [name for name in ordered if name.startswith("s2b")] == ["s2b9", "s2b10"]
    assert ordered.index("9") < ordered.index("10")


def test_two_clients_of_one_name() -> None:
    grid = clients(["north", "south", "north"])
    with pytest.raises(ConfigError, match=r"same name: north \(2 clients\).*partition-id"):
        say_hello(grid, 3, timeout=10)
    assert grid.sites == ()


def test_a_client_that_fails_at_the_hello() -> None:
    with pytest.raises(NodesMissingError) as caught:
        say_hello(clients(["a", "b", "c"], failing=[1]), 3, timeout=10)
    assert str(caught.value) == (
        "2 of 3 clients answered the hello\n  node 1001: ValueError: partition-id = 1 is not allowed"
    )


def test_all_clients_fail_at_the_hello() -> None:
    with pytest.raises(AllClientsFailedError, match=r"query\.hello: no client"):
        say_hello(clients(["a", "b"], failing=[0, 1]), 2, timeout=10)


def test_other_source_files_are_an_error_that_names_both_paths() -> None:
    other = Path("/home/me/old-checkout")
    grid = clients(["a", "b", "c"], digests={0: ("0" * 64, str(other)), 2: ("0" * 64, str(other))})
    with pytest.raises(SourceMismatchError) as caught:
        say_hello(grid, 3, timeout=10)
    text = str(caught.value)
    assert f"the server runs the source files in {ROOT}" in text
    assert f"  a, c: {other}" in text
    for part in ("folder in which the SuperLink was started", "Stop that SuperLink", "empty folder"):
        assert part in text


def test_two_clients_with_one_partition_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"a, b have the same partition-id = 4"):
        say_hello(clients(["a", "b"], partitions=[4, 4]), 2, timeout=30)


@pytest.mark.parametrize(
    ("devices", "text"),
    [
        (["cpu", "cpu", "cpu"], "cpu"),
        (["cpu", "cpu", "cuda:0 (NVIDIA H200)"], "cpu 0-1, cuda:0 (NVIDIA H200) 2"),
        (["cpu", "cuda:0 (A)", "cpu", "cpu", "cuda:0 (A)"], "cpu 0 2-3, cuda:0 (A) 1 4"),
    ],
)
def test_which_partitions_are_on_which_device(devices: list[str], text: str) -> None:
    sites = [
        ClientSite(7, f"site-{place}", 10, 0, (1, 0), device, place) for place, device in enumerate(devices)
    ]
    assert devices_text(sites[::-1]) == text
