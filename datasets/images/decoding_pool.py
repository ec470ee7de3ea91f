"""Image files decoded side by side, by processes of one thread each.

They are plain subprocesses that are asked over pipes: they import no main module, as `multiprocessing` would,
share no thread or lock of a Flower process, and end by themselves when the one that asks is killed.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import numpy as np

from datasets.errors import DataError
from datasets.images.decoding import Pixels, decode_files

_CHUNK = 32  # files that are asked for at once
_WORTH_A_PROCESS = 256  # files; fewer are decoded before one more process has started
_SERVE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from datasets.images.decoding_pool import serve; serve()"
)


def decode_all(paths: Sequence[Path], size: int) -> Generator[Pixels | str, None, None]:
    """Yield for each file, in order, its pixels or the reason why it has none; see ``decoding.decode``.

    Raises
    ------
    DataError
        If a process that decodes is ended from outside.
    """
    chunks = [paths[start : start + _CHUNK] for start in range(0, len(paths), _CHUNK)]
    workers = min(_cores(), -(-len(paths) // _WORTH_A_PROCESS))
    if workers < 2:
        for chunk in chunks:
            yield from decode_files(chunk, size)
        return
    idle: SimpleQueue[_Worker] = SimpleQueue()
    started: list[_Worker] = []

    def ask(chunk: Sequence[Path]) -> list[Pixels | str]:
        worker = idle.get()
        try:
            return worker.decode(chunk, size)
        finally:
            idle.put(worker)

    with ThreadPoolExecutor(workers) as threads:
        try:
            for _ in range(workers):
                started.append(_Worker())
                idle.put(started[-1])
            ahead: deque[Future[list[Pixels | str]]] = deque()
            for chunk in chunks:
                ahead.append(threads.submit(ask, chunk))
                if len(ahead) > 2 * workers:
                    yield from ahead.popleft().result()
            while ahead:
                yield from ahead.popleft().result()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            for worker in started:
                worker.end()


def serve() -> None:
    """Answer what stands on standard input until it ends: the main function of a process that decodes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks
    for line in sys.stdin.buffer:
        request = json.loads(line)
        results = decode_files([Path(path) for path in request["paths"]], request["size"])
        channels = [result if isinstance(result, str) else len(result) for result in results]
        try:
            sys.stdout.buffer.write(json.dumps(channels).encode() + b"\n")
            for result in results:
                if not isinstance(result, str):
                    sys.stdout.buffer.write(result.tobytes())
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            os._exit(1)  # whoever asked is gone; a flush at the usual exit would fail as well


class _Worker:
    """A process that decodes."""

    def __init__(self) -> None:
        # -P: no module of the working folder may stand in for one of the standard library.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _SERVE, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout

    def decode(self, paths: Sequence[Path], size: int) -> list[Pixels | str]:
        """Return what ``decode_files`` returns in the process."""
        request = {"paths": [str(path) for path in paths], "size": size}
        results: list[Pixels | str] = []
        try:
            self._requests.write(json.dumps(request).encode() + b"\n")
            self._requests.flush()
            for answer in json.loads(self._answers.readline() or "null") or []:
                if isinstance(answer, str):
                    results.append(answer)
                    continue
                pixels = np.empty((answer, size, size), dtype=np.uint8)
                if self._answers.readinto(pixels.data.cast("B")) < pixels.size:  # type: ignore[attr-defined]
                    break
                results.append(pixels)
        except BrokenPipeError:
            pass
        if len(results) < len(paths):
            raise DataError(
                f"A process that decodes images ended with exit status {self._process.wait()} at one of the "
                f"files {paths[0]} to {paths[-1]}. Start again; if it was killed because memory ran out "
                "(-9), leave large files out."
            )
        return results

    def end(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        self._answers.close()
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
