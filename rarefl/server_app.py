"""The ServerApp that pyproject.toml names: hands the run to the app that the run config chooses."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fairfal_app.server_app import run as run_fairfal
from federation.config.run_config import parse_run_config
from federation.runs.progress import OWN_LINE, set_up_logging
from fedraw_app.server_app import run as run_fedraw

SERVER_RUNS = {"fairfal": run_fairfal, "fedraw": run_fedraw}

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Check the run config and run its app."""
    config = parse_run_config(context.run_config)
    set_up_logging(config.output.quiet, OWN_LINE)
    SERVER_RUNS[config.app](grid, config)
