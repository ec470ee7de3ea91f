"""The loop of an asynchronous run, which owns all of its state.

One tick of the clock at a time: an arrival feeds the buffer, a full buffer makes a version, and when nothing
is left of the present instant the free clients get the present version.
"""

import logging
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid

from fedraw.aggregation import Arrays
from fedraw.arrays import read_array
from fedraw.clock import Job, Tick, TickKind
from fedraw.errors import RunStoppedError
from fedraw.mailbox import Mailbox, wait_for_nodes
from fedraw.run import checkpoint
from fedraw.run.buffer import Entry
from fedraw.run.evaluation import EvaluateFunction, ServerEvaluation, evaluate_clients
from fedraw.run.events import Event, as_callback
from fedraw.run.flush import make_version
from fedraw.run.influence import Influence
from fedraw.run.result import AsynchronousResult
from fedraw.run.roster import Client, Roster
from fedraw.run.updates import ReplyError, Update, read_update
from fedraw.run.versions import VersionStore

if TYPE_CHECKING:
    from fedraw.strategies.asynchronous import AsynchronousStrategy

LOGGER = logging.getLogger("flwr.fedraw")

# Seconds between looks at the connected nodes on a wall clock.
NODE_POLL = 5.0
# Doublings after which a pause grows no further, whatever its limit.
MOST_DOUBLINGS = 30


class AsynchronousRun:
    """One run: clients, versions, jobs in flight, buffer, and what became of every update."""

    def __init__(
        self,
        strategy: "AsynchronousStrategy",
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_versions: int,
        timeout: float,
        train_config: ConfigRecord | None,
        evaluate_config: ConfigRecord | None,
        evaluate_fn: EvaluateFunction | None,
    ) -> None:
        self.strategy = strategy
        self.grid = grid
        self.num_versions = num_versions
        self.timeout = timeout
        self.train_config = ConfigRecord() if train_config is None else train_config
        self.evaluate_config = ConfigRecord() if evaluate_config is None else evaluate_config
        self.clock = strategy.clock
        self.clock.reset()
        self.mailbox = Mailbox(grid)
        self.roster = Roster(strategy.dispatch, strategy.seed, strategy.sites)
        self.versions = VersionStore({key: read_array(a) for key, a in initial_arrays.items()})
        self.buffer = strategy.make_buffer()
        self.jobs: dict[int, Job] = {}
        self.influence = Influence()
        self.train_metrics: dict[int, MetricRecord] = {}
        self.client_metrics: dict[int, MetricRecord] = {}
        self.evaluation = ServerEvaluation(evaluate_fn, background=not self.clock.virtual)
        self.sequence = 0
        self.draws = 0
        self.resumed = False
        self.emit = as_callback(strategy.events)
        self._warned: set[str] = set()
        self._look_at_nodes = True
        self._looked_at = -math.inf

    def complete(self) -> AsynchronousResult:
        """Run to the last version and return the result."""
        try:
            self._wait_for_nodes()
            self._refresh_nodes()
            if self.resumed:
                for job in self.jobs.values():
                    self._send(job)
            elif self.evaluation.wanted:
                self.evaluation.submit(0, self.versions.record(0))
            while self.versions.current < self.num_versions:
                self._step()
            self._end()
        finally:
            self.evaluation.close()
        return self.outcome()

    def _step(self) -> None:
        """Fill the free places if the instant is over, and take the next tick."""
        if not self.clock.more_now():
            self.clock.read()
            self._refresh_nodes()
            self._dispatch()
        stuck = not self.jobs and not self.clock.pending()
        happened = None if stuck else self.clock.next(self.mailbox, self.jobs, self.timeout)
        self.evaluation.collect()
        if happened is not None:
            self._take(*happened)
        if self.strategy.is_ready(self.buffer, self.roster):
            self._evaluate(make_version(self))
        elif stuck:
            self._wait_for_anybody()
        if happened is not None and self.strategy.on_step is not None:
            self.strategy.on_step(self.strategy)

    def _take(self, tick: Tick, reply: Message | None) -> None:
        if tick.kind is TickKind.WAKE:
            self.roster.free(tick.site, self.clock.now)
        else:
            self._end_job(self.jobs.pop(tick.sequence), tick, reply)

    def _end(self) -> None:
        """Abandon what is in flight, and leave the nodes free where that takes computed time only."""
        for entry in self.buffer:
            self.log("leave", entry.site, entry.job, entry.version)
        for job in self.jobs.values():
            self.log("abandon", job.site, job.number, job.version)
        if self.clock.virtual:
            self.mailbox.drain(self.timeout)
        elif self.versions.current:
            self._let_clients_evaluate(self.versions.current)
        self.evaluation.collect(wait=True)

    def outcome(self) -> AsynchronousResult:
        """Return the result so far."""
        return AsynchronousResult(
            arrays=self.versions.record(self.versions.current),
            train_metrics_clientapp=self.train_metrics,
            evaluate_metrics_clientapp=self.client_metrics,
            evaluate_metrics_serverapp=self.evaluation.results,
            influence=self.influence.summary(
                clients=self.roster.clients,
                rare=self.strategy.rare_group(),
                left_over=len(self.buffer),
                in_flight=len(self.jobs),
            ),
        )

    def _wait_for_nodes(self) -> None:
        """Wait until enough nodes are connected to begin with; after a restart, as many as there were."""
        least, patience = self.strategy.min_available_nodes, self.strategy.node_timeout
        nodes = wait_for_nodes(self.grid, max(least, len(self.roster.clients)), patience)
        if len(nodes) < least:
            raise self._stopped(
                f"{len(nodes)} nodes are connected after {patience:g} s, min_available_nodes is {least}; "
                "start more nodes or ask for fewer"
            )

    def _refresh_nodes(self) -> None:
        """Look at the connected nodes: first, after a failure, and from time to time on a wall clock."""
        due = not self.clock.virtual and self.clock.now - self._looked_at >= NODE_POLL
        if self._look_at_nodes or due:
            self.roster.refresh(self.grid.get_node_ids(), self.clock.now)
            self._look_at_nodes = False
            self._looked_at = self.clock.now
            if not self.clock.virtual:
                self._fail_lost_jobs()

    def _fail_lost_jobs(self) -> None:
        """End the jobs of sites that have another node now: a node that was started again forgot its job."""
        lost = [
            job for job in self.jobs.values() if self.roster.clients[job.site].node not in (None, job.node)
        ]
        if lost:
            self.mailbox.poll()  # an old node may have answered before it stopped
        for job in lost:
            if not self.mailbox.has(job.message_id):
                self.mailbox.forget(job.message_id)
                self.versions.release(job.version)
                del self.jobs[job.sequence]
                self._fail(job, "node-gone", "its node was started again")

    def _wait_for_anybody(self) -> None:
        """Nothing is in flight and nobody can take a job: wait for nodes where time is real, else stop."""
        patience = 0.0 if self.clock.virtual else self.strategy.node_timeout
        self.roster.refresh(wait_for_nodes(self.grid, 1, patience), self.clock.now)
        if not self.roster.reachable():
            raise self._stopped(
                f"no client can take a job at version {self.versions.current} of {self.num_versions}: of "
                f"{len(self.roster.clients)} clients none is connected and available; nothing is in flight"
            )

    def _stopped(self, message: str) -> RunStoppedError:
        return RunStoppedError(message, self.outcome())

    def _dispatch(self) -> None:
        """Give jobs to free clients while there are free places."""
        while len(self.jobs) < self.strategy.concurrency:
            client = self.roster.next(self.draws)
            if client is None:
                return
            self.draws += 1
            at = self.clock.available_at(client.site, client.attempts)
            client.attempts += 1
            if at <= self.clock.now:
                self._begin_job(client)
            elif math.isinf(at):
                client.state = "off"
            else:
                client.state = "waiting"
                self._pause(client.site, at)

    def _begin_job(self, client: Client) -> None:
        assert client.node is not None
        limit = self.strategy.job_timeout
        if limit is None:
            limit = math.inf if self.clock.virtual else self.timeout
        job = Job(
            site=client.site,
            node=client.node,
            number=client.jobs,
            version=self.versions.current,
            sequence=self._next_sequence(),
            started=self.clock.now,
            deadline=self.clock.now + limit,
        )
        client.jobs += 1
        client.state = "busy"
        self.versions.acquire(job.version)
        self.log("dispatch", job.site, job.number, job.version)
        if self._send(job):
            self.jobs[job.sequence] = job
            self.clock.begin(job)
        else:
            self.versions.release(job.version)
            self._fail(job, "unreachable", f"no message can be pushed to node {job.node}")

    def _send(self, job: Job) -> bool:
        """Send a job's message to the client's node now, and tell whether that was possible."""
        node = self.roster.clients[job.site].node
        if self.strategy.timing_only or node is None:
            return node is not None
        content = RecordDict(
            {
                self.strategy.arrayrecord_key: self.versions.record(job.version),
                self.strategy.configrecord_key: ConfigRecord(
                    {**self.train_config, "server-round": job.version + 1, "job": job.number}
                ),
            }
        )
        ttl = None if self.clock.virtual else job.deadline - job.started
        message_id = self.mailbox.send(Message(content, node, MessageType.TRAIN, ttl=ttl))
        job.node, job.message_id = node, message_id or ""
        return message_id is not None

    def _pause(self, site: str, until: float) -> None:
        self.clock.wake(Tick(until, TickKind.WAKE, site, self._next_sequence()))

    def _next_sequence(self) -> int:
        self.sequence += 1
        return self.sequence

    def _end_job(self, job: Job, tick: Tick, reply: Message | None) -> None:
        """Free the job's place and take its update, or count its failure."""
        sent = self.versions.arrays(job.version)
        self.versions.release(job.version)
        try:
            if tick.kind is TickKind.TIMEOUT:
                raise ReplyError("timeout", f"no reply {job.deadline - job.started:g} s after its dispatch")
            if self.strategy.timing_only:
                update = Update()
            elif reply is None:
                raise ReplyError("timeout", f"no reply within {self.timeout:g} real seconds")
            else:
                update = read_update(
                    reply,
                    sent,
                    arrays_key=self.strategy.arrayrecord_key,
                    examples_key=self.strategy.weighted_by_key,
                    examples_needed=self.strategy.weigh_by == "examples",
                    buffer_keys=self.strategy.buffer_keys,
                )
        except ReplyError as error:
            self._fail(job, error.reason, str(error))
        else:
            self._accept(job, update, sent)

    def _accept(self, job: Job, update: Update, sent: Arrays) -> None:
        self.roster.clients[job.site].failures = 0
        self.roster.free(job.site, self.clock.now)
        tau = self.versions.current - job.version
        entry = Entry(
            job.site,
            job.number,
            job.version,
            job.sequence,
            update.deltas,
            update.values,
            update.metrics,
            update.examples,
        )
        self.influence.received += 1
        self.strategy.received(entry, sent)
        if self.strategy.max_staleness is not None and tau > self.strategy.max_staleness:
            self.influence.dropped["stale"] += 1
            self.log("drop", job.site, job.number, job.version, tau, reason="stale")
            return
        self.log("arrive", job.site, job.number, job.version, tau)
        displaced = self.buffer.add(entry)
        if displaced is not None:
            self.influence.replaced[displaced.site] += 1
            staleness = self.versions.current - displaced.version
            self.log("replace", displaced.site, displaced.job, displaced.version, staleness)

    def _fail(self, job: Job, reason: str, detail: str) -> None:
        """Count a failure and let the client pause, longer with each one in a row."""
        client = self.roster.clients[job.site]
        client.failures += 1
        client.state = "backoff"
        doublings = min(client.failures - 1, MOST_DOUBLINGS)
        self._pause(
            job.site,
            self.clock.now + min(self.strategy.retry_limit, self.strategy.retry_after * 2.0**doublings),
        )
        self.influence.failed[reason] += 1
        self._look_at_nodes = True
        self.log("fail", job.site, job.number, job.version, reason=reason)
        self.warn(f"{job.site} {reason}", f"job {job.number} of site '{job.site}' failed: {detail}")
        if reason == "dead-worker":
            raise self._stopped(
                f"{detail}\nA dead Ray worker stays in Flower's pool and fails every message that it gets: "
                "start the run again, or go on with it, with less memory in use if that ran out, or on the "
                "machines that are left"
            )
        connected = [other for other in self.roster.clients.values() if other.node is not None]
        limit = self.strategy.give_up_after
        if connected and all(other.failures >= limit for other in connected):
            raise self._stopped(
                f"each of the {len(connected)} connected clients failed {limit} times in a row; the last "
                f"failure, of site '{job.site}': {detail}"
            )

    def _evaluate(self, version: int) -> None:
        """Evaluate a version that has just been published, if it is its turn."""
        if version % max(1, self.num_versions // 100) == 0 or version == self.num_versions:
            LOGGER.info("[VERSION %d/%d] time %.1f", version, self.num_versions, self.clock.now)
        if version % self.strategy.evaluate_every == 0 or version == self.num_versions:
            if self.evaluation.wanted:
                self.evaluation.submit(version, self.versions.record(version))
            if self.clock.virtual:
                self._let_clients_evaluate(version)

    def _let_clients_evaluate(self, version: int) -> None:
        metrics = evaluate_clients(self, version)
        if metrics is not None:
            self.client_metrics[version] = metrics

    def log(
        self,
        kind: str,
        site: str,
        job: int | None,
        version: int,
        staleness: int | None = None,
        weight: float | None = None,
        reason: str = "",
    ) -> None:
        """Put a record of the present time into the event log."""
        self.emit(Event(self.clock.now, kind, site, job, version, staleness, weight, reason))

    def warn(self, key: str, text: str) -> None:
        """Log a warning the first time that it is given."""
        if key not in self._warned:
            self._warned.add(key)
            LOGGER.warning(text)

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return everything that the rest of the run depends on."""
        return checkpoint.pack(self)

    def restore(self, arrays: dict[str, np.ndarray], state: dict[str, Any]) -> None:
        """Go on from a state; jobs that were in flight are sent again by ``complete``."""
        checkpoint.unpack(self, arrays, state)
        self.resumed = True
