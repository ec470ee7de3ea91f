"""The README and the pages of docs: their commands, links, files, keys and examples are true.

Every command is under test. Those of ``rarefl`` that start no training are run; of the others the settings
are checked by the parser that the run would use. What needs a user's own machine is listed in
``OF_THE_USER``.
"""

import argparse
import importlib
import re
import runpy
import shlex
import shutil
import sys
import tomllib
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import pytest
import torch
import typer
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from matplotlib.figure import Figure
from PIL import Image
from typer.core import TyperGroup
from typer.testing import CliRunner

from datasets.federated import FederatedData, federate
from fairfal_app.config import FairFALConfig
from federation import measures
from federation.client import data_spec
from federation.config.run_config import default_run_config, flatten, parse_run_config
from federation.runs.run_folder import RUN_FILES, RunFolder
from rarefl.cli import app
from rarefl.machine import Machine
from rarefl.run import RunFinished
from rarefl.settings import read_words
from rarefl.sweep_plan import plan_runs
from tests.inprocess import InProcessGrid
from tests.rarefl.report_runs import label_rounds, training

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("README.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("fedraw/README.md")])
TEXTS = {page.relative_to(ROOT).as_posix(): page.read_text() for page in PAGES}

# How a command in running text begins; the bare name of Flower's command is no command.
IN_TEXT = r"([A-Z_]+=\S+ )*(rarefl |flwr \w+ |python -m |python docs/|pip install|pytest )"

# What stands for a value of the reader's own, and a value to test with.
STAND_INS = {"conf/X.toml": "conf/fairfal-digits.toml", "KEY=VALUE": "seed=2"}

# Commands that act on a user's own machine; why they are not run here.
OF_THE_USER = {
    "python3.11 -m venv .venv": "done by whoever installs the project; .ci/run does it in a clean clone",
    ". .venv/bin/activate": "as above",
    "pip install -e .": "needs a network; .ci/run installs with the extra test",
    'pip install -e ".[test]"': "as above",
    'pip install -e ".[tensorboard]"': "as above; the extra is checked",
    "pip install ./fedraw": "as above; tests/fedraw installs its wheel into an environment of its own",
    "pip install elpv-dataset": "needs a network; the extra elpv has it",
    "ray start": "needs several machines; tests/integration/test_cluster.py starts two Ray nodes",
    "ray status": "as above",
    "tensorboard --logdir results": "a server that does not end",
    "flwr ls --format json": "asks a SuperLink; rarefl/superlink.py does so in tests/integration",
    "ruff": ".ci/run runs it",
    "mypy": ".ci/run runs it",
}


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def code_spans(text: str) -> list[str]:
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", without_blocks(text))]


def commands() -> list[tuple[str, str]]:
    """Return every command with its page: single ones, with variables of the block filled in."""
    found: list[tuple[str, str]] = []
    for page, text in TEXTS.items():
        for block in blocks(text, "bash"):
            variables: dict[str, str] = {}
            for line in block.replace("\\\n", " ").splitlines():
                for command in line.split(" && "):
                    if match := re.fullmatch(r"(\w+)=(\S+)", command.strip()):
                        variables[match[1]] = match[2]
                    else:
                        found.append((page, Template(command.strip()).substitute(variables)))
        found += [(page, span) for span in code_spans(text) if re.match(IN_TEXT, span)]
    return sorted(set(found))


ALL_COMMANDS = commands()


def words_of(command: str) -> list[str]:
    """Return the words of a command without variables before it, with stand-ins filled in."""
    words = shlex.split(command)
    while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        del words[0]
    return [STAND_INS.get(word, word) for word in words]


def of_program(*names: str) -> list[Any]:
    """Return the words of the commands of a program, each once, for parametrize."""
    chosen = {" ".join(words_of(c)): (page, c) for page, c in ALL_COMMANDS}
    params = [pytest.param(words_of(command), id=f"{page}: {command}") for page, command in chosen.values()]
    return [param for param in params if param.values[0][: len(names)] == list(names)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with presets, results of sweeps, and a preset of one's own; and a home of its own."""
    for name in ("conf", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name)
    images = tmp_path / "home" / "images"
    for site in range(3):
        for label in ("mild", "severe"):
            (images / f"site{site}" / label).mkdir(parents=True)
            for number in range(12):
                write_image(images / f"site{site}" / label / f"{number}.png")
    own = next(block for block in blocks(TEXTS["docs/data.md"], "toml"))
    (tmp_path / "conf" / "own-images.toml").write_text(own.replace("/home/me/images", str(images)))
    for place in ("digits", "fmnist", "elpv/fedraw"):
        training(tmp_path / "results" / place / "run", "fedraw", 1, 0.9, {"0.80": 10.0})
    label_rounds(tmp_path / "results" / "elpv" / "fairfal" / "run", "random", 1, [0.5, 0.6])
    for _, command in ALL_COMMANDS:
        if run := re.search(r"--resume ~/(\S+)", command):
            begun = RunFolder.create(str(tmp_path / "home" / run[1]), "fairfal", "digits")
            begun.write_config(parse_run_config(default_run_config(), FairFALConfig).resolved())
            begun.release()
    # How pictures look is tested with what draws them; to render them takes most of the time here.
    monkeypatch.setattr(Figure, "savefig", lambda _, file, **__: Image.new("L", (1, 1)).save(file, "png"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flower"))
    (tmp_path / "flower").mkdir()
    (tmp_path / "flower" / "config.toml").write_text('[superlink.NAME]\naddress = "127.0.0.1:9093"\n')
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def write_image(path: Path) -> None:
    rng = np.random.default_rng(list(str(path).encode()))
    Image.fromarray(rng.integers(0, 256, (64, 70), dtype=np.uint8)).save(path)


# Commands ---------------------------------------------------------------------------------------------------


def test_every_command_is_under_a_test_or_listed() -> None:
    assert len(ALL_COMMANDS) > 40
    tested = ("rarefl", "flwr run", "python", "pytest", "export")
    for page, command in ALL_COMMANDS:
        words = " ".join(words_of(command))
        listed = [start for start in OF_THE_USER if command.startswith(start)]
        assert bool(listed) != words.startswith(tested) or command in OF_THE_USER, f"{page}: {command}"
    for start in OF_THE_USER:
        assert any(command.startswith(start) for _, command in ALL_COMMANDS), f"{start} is in no page"


def test_extras_that_are_installed_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for _, command in ALL_COMMANDS:
        for names in re.findall(r"pip install .*\[(.+)\]", command):
            assert set(names.split(",")) <= set(extras), command


@pytest.mark.parametrize("words", of_program("pytest"))
def test_pytest_is_given_files_that_exist(words: list[str]) -> None:
    for path in (word for word in words[1:] if "/" in word):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("words", of_program("python", "-m"))
def test_modules_take_these_arguments(
    words: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ParsedError(Exception):
        pass

    parse = argparse.ArgumentParser.parse_args

    def parse_and_stop(parser: argparse.ArgumentParser, *_: object) -> None:
        given = parse(parser, words[3:])
        assert all(value.exists() for value in vars(given).values() if isinstance(value, Path))
        raise ParsedError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
    with pytest.raises(ParsedError):
        importlib.import_module(words[2]).main()


def test_the_picture_of_the_results_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (words,) = {tuple(words_of(command)) for _, command in ALL_COMMANDS if command.startswith("python docs/")}
    monkeypatch.setattr(sys, "argv", [words[1], str(tmp_path / "results.png")])
    monkeypatch.setattr(sys, "path", list(sys.path))
    runpy.run_path(str(ROOT / words[1]), run_name="__main__")
    pictures = (tmp_path / "results.png", ROOT / "docs" / "pictures" / "results.png")
    drawn, shown = (Image.open(picture).size for picture in pictures)
    assert drawn == shown


@pytest.mark.parametrize("words", of_program("flwr", "run"))
def test_flwr_run_is_given_settings_that_fit(words: list[str], folder: Path) -> None:
    settings = default_run_config()
    if "--run-config" in words:
        given = words[words.index("--run-config") + 1]
        settings |= flatten(tomllib.loads(Path(given).read_text()))
    config = parse_run_config(settings, FairFALConfig)
    resources = dict(pair.split("=") for pair in words[words.index("--federation-config") + 1].split())
    assert int(resources["num-supernodes"]) == config.data.clients


@pytest.mark.parametrize("words", [*of_program("rarefl", "check"), *of_program("rarefl", "list")])
def test_rarefl_tells(words: list[str], folder: Path) -> None:
    result = CliRunner().invoke(app, words[1:])
    assert result.exit_code == 0, result.output[-2000:]
    assert result.stdout.strip()


@pytest.mark.parametrize("words", of_program("rarefl", "run"))
def test_rarefl_run_starts(words: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All is checked as ever; then nothing is started. Data sets that need files are taken to be there."""
    started = []

    def start(config: FairFALConfig, *_: object) -> RunFinished:
        started.append(config)
        return RunFinished(0)

    def check_data(config: FairFALConfig) -> FederatedData | None:
        return federate(data_spec(config)) if config.data.name in ("digits", "image-folder") else None

    monkeypatch.setattr("rarefl.run.run_here", start)
    monkeypatch.setattr("rarefl.run.run_there", start)
    monkeypatch.setattr("rarefl.checks.check_data", check_data)
    monkeypatch.setattr(Machine, "this", lambda: Machine(cpus=4, gpus=1, gpu_bytes=8 * 2**30))
    given = [word.replace("/home/me/", f"{folder}/home/") for word in words[1:]]
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 0, result.output[-2000:]
    assert len(started) == ("--dry-run" not in given)


@pytest.mark.parametrize("words", of_program("rarefl", "sweep"))
def test_rarefl_sweep_is_given_a_grid_that_fits(words: list[str], folder: Path) -> None:
    given = arguments(words)
    settings = read_words(given["words"], given["more"] or [])
    runs = plan_runs(settings, given["seeds"], Path(given["out"]))
    assert len(runs) > 1


def arguments(words: list[str]) -> dict[str, Any]:
    """Return what a command of ``rarefl`` takes from its words."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return group.commands[words[1]].make_context(words[1], words[2:]).params


@pytest.mark.parametrize("words", of_program("rarefl", "data"))
def test_rarefl_data_draws(words: list[str], folder: Path) -> None:
    result = CliRunner().invoke(app, words[1:])
    assert result.exit_code == 0, result.output[-2000:]
    assert len(list(Path("pictures").glob("*.png"))) == 2


@pytest.mark.parametrize("words", of_program("rarefl", "report"))
def test_rarefl_report_writes(words: list[str], folder: Path) -> None:
    paths = [path for word in words[2:] for path in (sorted(map(str, Path().glob(word))) or [word])]
    result = CliRunner().invoke(app, ["report", *paths])
    assert result.exit_code == 0, result.output[-2000:]
    assert list(Path().glob("**/report.html"))


# Links, names and examples ----------------------------------------------------------------------------------


def headings(page: Path) -> set[str]:
    """Return the anchors of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", without_blocks(page.read_text()), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", TEXTS)
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    for target in re.findall(r"\]\(([^)]+)\)", without_blocks(TEXTS[name])):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        assert not anchor or anchor in headings(linked), target


def test_every_page_is_linked_from_the_readme() -> None:
    for page in PAGES:
        assert page.name == "README.md" or f"](docs/{page.name})" in TEXTS["README.md"], page


def test_the_readme_is_short() -> None:
    assert len(TEXTS["README.md"].splitlines()) <= 100


def test_every_preset_is_in_the_table() -> None:
    for preset in (ROOT / "conf").glob("*.toml"):
        assert f"`{preset.stem}`" in TEXTS["docs/runs.md"], preset


def test_every_file_of_a_run_is_in_the_table() -> None:
    for name in RUN_FILES:
        assert re.search(rf"`{re.escape(name)}/?`", TEXTS["docs/runs.md"]), name


def test_the_table_of_measures_is_that_of_the_code() -> None:
    """It is written by ``federation.measures.markdown_table``."""
    assert measures.markdown_table() in TEXTS["docs/runs.md"]


@pytest.mark.parametrize("name", TEXTS)
def test_keys_of_the_run_config_exist(name: str) -> None:
    keys = default_run_config()
    tables = {key.split(".")[0] for key in keys if "." in key}
    for span in code_spans(TEXTS[name]):
        key = re.match(r"[a-z]+\.[a-z-]+", span)
        if key and span.split(".")[0] in tables and not span.endswith(".py"):
            assert key[0] in keys, f"{name}: {span}"


def test_paths_of_the_house_exist() -> None:
    """All but those in which NAME stands for something new."""
    spans = code_spans(TEXTS["docs/house.md"])
    paths = [span for span in spans if re.fullmatch(r"[\w/.]+(/|\.py|\.toml)", span) and "/" in span]
    assert len(paths) > 30
    for path in paths:
        assert "NAME" in path or (ROOT / path).exists(), path
    rooms = {path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("*/**/__init__.py")}
    assert {room for room in rooms if not room.startswith(("tests", "."))} <= {p.rstrip("/") for p in paths}


@pytest.mark.parametrize("name", TEXTS)
def test_python_examples_compile(name: str) -> None:
    for block in blocks(TEXTS[name], "python"):
        compile(block, name, "exec")


def test_the_readme_shows_a_strategy_that_runs() -> None:
    (block,) = blocks(TEXTS["README.md"], "python")
    client = ClientApp()

    @client.train()
    def train(message: Message, context: Context) -> Message:
        metrics = MetricRecord({"num-examples": 1, "label-coverage": [1, 0]})
        content = RecordDict({"arrays": message.content["arrays"], "metrics": metrics})
        return Message(content, reply_to=message)

    grid = InProcessGrid(client, 4)
    arrays = ArrayRecord({"weight": Array(np.zeros((2, 3), np.float32))})
    namespace: dict[str, Any] = {"grid": grid, "arrays": arrays}
    exec(block, namespace)
    assert len(namespace["result"].train_metrics_clientapp) == 100
    assert len(grid.received) >= 300


def test_differences_between_runs_are_found(tmp_path: Path) -> None:
    namespace: dict[str, Any] = {}
    (block,) = blocks(TEXTS["docs/house.md"], "python")
    exec(block, namespace)
    for run, value in (("a", 1.0), ("b", 1.0), ("c", 2.0)):
        (tmp_path / run).mkdir()
        torch.save({"weight": torch.tensor([value])}, tmp_path / run / "final.pt")
        (tmp_path / run / "rounds.csv").write_text(f"accuracy\n{value}\n")
    assert namespace["differences"](tmp_path / "a", tmp_path / "b") == []
    assert namespace["differences"](tmp_path / "a", tmp_path / "c") == ["rounds.csv", "final.pt"]
