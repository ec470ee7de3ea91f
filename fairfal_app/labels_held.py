"""That clients still hold the labels that they told of, and what to do where they do not."""

from collections.abc import Sequence

from federation.errors import ConfigError, LabelsLostError
from federation.messages.hello import Federation
from federation.runs.checkpoints import Checkpoint


def check_labels(checkpoint: Checkpoint, federation: Federation, run_key: str) -> None:
    """Check that the clients of a resumed run are those of before and hold the labels that they held.

    Raises
    ------
    ConfigError
        A client is there under another name.
    LabelsLostError
        A client told of fewer labels in its hello than it had.
    """
    due = checkpoint.state["num_labelled"]
    held = {site.name: site.num_labelled for site in federation.sites}
    if strangers := sorted(due.keys() - held.keys()):
        raise ConfigError(
            f"{', '.join(strangers)} took part before and are not connected; connected are "
            f"{', '.join(held)}. Start the SuperNodes with the names (site, partition-id) that they had"
        )
    lost = [(site, held[site], count) for site, count in due.items() if held[site] < count]
    if lost:
        raise LabelsLostError(labels_lost(lost, run_key))


def labels_lost(sites: Sequence[tuple[str, int, int]], run_key: str) -> str:
    """Return what it means that sites hold fewer labels than are due, and the way out."""
    told = ", ".join(f"{site} has {held} labels where {due} are due" for site, held, due in sites)
    return (
        f"{told}: what these clients kept on their disks is gone, or they look elsewhere. It lies in the "
        f"folder {run_key} of state-dir, a key of the node config; by default that is rarefl/clients in the "
        "user's state folder (~/.local/state). Bring it back and resume the run, or start a new one"
    )
