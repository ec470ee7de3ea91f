"""Where the results of runs go."""

from pathlib import Path

from federation.errors import RunFolderError

DEFAULT_PARENT = "~/rarefl/runs"


def output_path(directory: str) -> Path:
    """Return the absolute path that ``output.dir`` stands for; "" is the folder that holds all runs.

    Raises
    ------
    RunFolderError
        The path is relative, or its home folder is unknown.
    """
    try:
        path = Path(directory or DEFAULT_PARENT).expanduser()
    except RuntimeError as error:
        raise RunFolderError(f"output.dir = {directory!r}: {error}; give an absolute path") from None
    if not path.is_absolute():
        raise RunFolderError(
            f"output.dir = {directory!r} is relative. The server's working folder is one of Flower's, "
            "not the one in which you typed `flwr run`; give an absolute path, such as "
            f"{Path.home() / path}"
        )
    return path
