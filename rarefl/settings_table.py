"""The table of a run's settings: every key, its value, and where that comes from."""

import json

from rich.table import Table

from fairfal_app.config import FairFALConfig
from federation.config.run_config import default_run_config
from rarefl.settings import Given, read_preset


def settings_table(config: FairFALConfig, given: Given) -> Table:
    """Return a row for each key of the run config."""
    in_preset = read_preset(given.preset) if given.preset else {}
    values = config.flat()
    table = Table("key", "value", "from")
    for key in default_run_config():
        source = "given" if key in given.values else given.name if key in in_preset else "default"
        value = json.dumps(values[key], ensure_ascii=False)
        table.add_row(key, value, source, style="dim" if source == "default" else None)
    return table
