"""One line on who took part in the queries of a run."""

from collections.abc import Mapping
from typing import Any


def participation_line(told: Mapping[str, Any]) -> str:
    """Return how often clients were asked and answered, and who was left out, of ``Participation.state``."""
    left_out = "; ".join(
        f"{one['site']} left out of label round {one['label_round']}" for one in told["left_out"]
    )
    return f"asked {told['asked']} times, answered {told['answered']}" + (f"; {left_out}" if left_out else "")
