"""The ServerApp that pyproject.toml names: hands the run to the app that the run config chooses."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fairfal_app.config import FairFALConfig
from fairfal_app.server_app import run as run_fairfal
from federation.config.check import check_run_config
from federation.config.unused import unused_keys
from federation.runs.progress import OWN_LINE, logger, set_up_logging
from fedraw_app.server_app import run as run_fedraw

SERVER_RUNS = {"fairfal": run_fairfal, "fedraw": run_fedraw}

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Check the run config, name what of it has no effect, and run its app."""
    config = check_run_config(context.run_config, FairFALConfig)
    set_up_logging(config.output.quiet, OWN_LINE)
    for sentence in unused_keys(config):
        logger.warning(sentence)
    SERVER_RUNS[config.app](grid, config)
