"""Keys of a run config that were set and do nothing."""

from collections.abc import Mapping
from typing import Any

from federation.config.run_config import RunConfig, default_run_config


def unused_keys(config: RunConfig, defaults: Mapping[str, Any] | None = None) -> list[str]:
    """Return a sentence for each key that differs from its default and has no effect in this run.

    Such a key is an option of another strategy than the chosen one, or a setting of a clock, a delay model
    or a query that the run does not have: "strategy.rarity-weight = 4.0 has no effect: it is an option of
    fedraw, and strategy.name = 'fedavg'". Nothing is wrong with the run; it may not be what was meant.

    Parameters
    ----------
    defaults
        Flat; by default those of ``pyproject.toml``.
    """
    usual = default_run_config() if defaults is None else defaults
    flat, unused = config.flat(), config.without_effect()
    return [
        f"{key} = {value!r} has no effect: {unused[key]}"
        for key, value in flat.items()
        if key in unused and value != usual.get(key)
    ]
