"""What a TensorBoard shows of a run."""

from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def scalars(run: Path) -> dict[str, list[tuple[int, float]]]:
    """Return step and value, rounded to six decimals, of every scalar of a run's folder by its tag."""
    found = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    return {
        tag: [(point.step, round(point.value, 6)) for point in found.Scalars(tag)]
        for tag in found.Tags()["scalars"]
    }
