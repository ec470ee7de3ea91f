"""The loop of an asynchronous run, which owns all of its state.

One tick of the clock at a time: an arrival feeds the buffer, a full buffer makes a version, and when nothing
is left of the present instant the free clients get the present version.
"""

import logging
import math
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedraw.aggregation import Arrays
from fedraw.arrays import read_array
from fedraw.clock import Job, Tick, TickKind
from fedraw.errors import RunStoppedError
from fedraw.mailbox import Mailbox, wait_for_nodes
from fedraw.run import checkpoint
from fedraw.run.buffer import Entry
from fedraw.run.evaluation import EvaluateFunction, VersionEvaluation, ask_free_clients
from fedraw.run.flush import make_version
from fedraw.run.result import AsynchronousResult
from fedraw.run.roster import Participant, Roster
from fedraw.run.rule import UpdateRule
from fedraw.run.state import RunState
from fedraw.run.updates import ReplyError, Update, read_update
from fedraw.run.versions import VersionStore
from fedraw.strategies.settings import Settings

LOGGER = logging.getLogger("flwr.fedraw")

# Seconds between looks at the connected nodes on a wall clock.
NODE_POLL = 5.0
# Doublings after which a pause grows no further, whatever its limit.
MOST_DOUBLINGS = 30


class AsynchronousRun:
    """One run: takes the ticks of its clock, and changes its state.

    Parameters
    ----------
    rule, settings
        The strategy, as the loop knows it: how a buffer becomes an update, and its settings.
    grid, initial_arrays, timeout, train_config, evaluate_config, evaluate_fn
        See ``AsynchronousStrategy.start``.
    num_versions
        Versions to publish.
    """

    def __init__(
        self,
        rule: UpdateRule,
        settings: Settings,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_versions: int,
        timeout: float,
        train_config: ConfigRecord | None,
        evaluate_config: ConfigRecord | None,
        evaluate_fn: EvaluateFunction | None,
    ) -> None:
        self.rule = rule
        self.settings = settings
        self.grid = grid
        self.num_versions = num_versions
        self.timeout = timeout
        self.train_config = ConfigRecord() if train_config is None else train_config
        self.evaluate_config = ConfigRecord() if evaluate_config is None else evaluate_config
        self.clock = settings.clock
        self.clock.reset()
        self.mailbox = Mailbox(grid)
        self.state = RunState(
            clock=self.clock,
            roster=Roster(settings.dispatch, settings.seed, settings.sites),
            versions=VersionStore({key: read_array(a) for key, a in initial_arrays.items()}),
            buffer=rule.make_buffer(),
            events=settings.events,
        )
        self.evaluation = VersionEvaluation(
            evaluate_fn, self.state.server_metrics, background=not self.clock.virtual
        )
        self.resumed = False
        self._look_at_nodes = True
        self._looked_at = -math.inf

    def complete(self) -> AsynchronousResult:
        """Run to the last version and return the result."""
        try:
            self._wait_for_nodes()
            self._refresh_nodes()
            if self.resumed:
                for job in self.state.jobs.values():
                    self._send(job)
            elif self.evaluation.wanted:
                self.evaluation.submit(0, self.state.versions.record(0))
            while self.state.versions.current < self.num_versions:
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
        stuck = not self.state.jobs and not self.clock.pending()
        happened = None if stuck else self.clock.next(self.mailbox, self.state.jobs, self.timeout)
        self.evaluation.collect()
        if happened is not None:
            self._take(*happened)
        if self.rule.is_ready(self.state.buffer, self.state.roster):
            self._evaluate(make_version(self.state, self.rule, self.settings))
        elif stuck:
            self._wait_for_anybody()
        if happened is not None and self.settings.on_step is not None:
            self.settings.on_step(self.rule)

    def _take(self, tick: Tick, reply: Message | None) -> None:
        if tick.kind is TickKind.WAKE:
            self.state.roster.free(tick.site, self.clock.now)
        else:
            self._end_job(self.state.jobs.pop(tick.sequence), tick, reply)

    def _end(self) -> None:
        """Abandon what is in flight, and leave the nodes free where that takes computed time only."""
        for entry in self.state.buffer:
            self.state.log("leave", entry.site, entry.job, entry.version)
        for job in self.state.jobs.values():
            self.state.log("abandon", job.site, job.number, job.version)
        if self.clock.virtual:
            self.mailbox.drain(self.timeout)
        elif self.state.versions.current:
            self._let_clients_evaluate(self.state.versions.current)
        self.evaluation.collect(wait=True)

    def outcome(self) -> AsynchronousResult:
        """Return the result so far."""
        return AsynchronousResult(
            arrays=self.state.versions.record(self.state.versions.current),
            train_metrics_clientapp=self.state.train_metrics,
            evaluate_metrics_clientapp=self.state.client_metrics,
            evaluate_metrics_serverapp=self.state.server_metrics,
            influence=self.state.influence.summary(
                clients=self.state.roster.clients,
                rare=self.rule.rare_group(),
                left_over=len(self.state.buffer),
                in_flight=len(self.state.jobs),
            ),
        )

    def _wait_for_nodes(self) -> None:
        """Wait until enough nodes are connected to begin with; after a restart, as many as there were."""
        least, patience = self.settings.min_available_nodes, self.settings.node_timeout
        nodes = wait_for_nodes(self.grid, max(least, len(self.state.roster.clients)), patience)
        if len(nodes) < least:
            raise self._stopped(
                f"{len(nodes)} nodes are connected after {patience:g} s, min_available_nodes is {least}; "
                "start more nodes or ask for fewer"
            )

    def _refresh_nodes(self) -> None:
        """Look at the connected nodes: first, after a failure, and from time to time on a wall clock."""
        due = not self.clock.virtual and self.clock.now - self._looked_at >= NODE_POLL
        if self._look_at_nodes or due:
            self.state.roster.refresh(self.grid.get_node_ids(), self.clock.now)
            self._look_at_nodes = False
            self._looked_at = self.clock.now
            if not self.clock.virtual:
                self._fail_lost_jobs()

    def _fail_lost_jobs(self) -> None:
        """End the jobs of sites that have another node now: a node that was started again forgot its job."""
        lost = [
            job
            for job in self.state.jobs.values()
            if self.state.roster.clients[job.site].node not in (None, job.node)
        ]
        if lost:
            self.mailbox.poll()  # an old node may have answered before it stopped
        for job in lost:
            if not self.mailbox.has(job.message_id):
                self.mailbox.forget(job.message_id)
                self.state.versions.release(job.version)
                del self.state.jobs[job.sequence]
                self._fail(job, "node-gone", "its node was started again")

    def _wait_for_anybody(self) -> None:
        """Nothing is in flight and nobody can take a job: wait for nodes where time is real, else stop."""
        patience = 0.0 if self.clock.virtual else self.settings.node_timeout
        self.state.roster.refresh(wait_for_nodes(self.grid, 1, patience), self.clock.now)
        roster, version = self.state.roster, self.state.versions.current
        if not roster.reachable():
            raise self._stopped(
                f"no client can take a job at version {version} of {self.num_versions}: of "
                f"{len(roster.clients)} clients none is connected and available; nothing is in flight"
            )

    def _stopped(self, message: str) -> RunStoppedError:
        return RunStoppedError(message, self.outcome())

    def _dispatch(self) -> None:
        """Give jobs to free clients while there are free places."""
        while len(self.state.jobs) < self.settings.concurrency:
            client = self.state.roster.next(self.state.draws)
            if client is None:
                return
            self.state.draws += 1
            at = self.clock.available_at(client.site, client.attempts)
            client.attempts += 1
            if at <= self.clock.now:
                self._begin_job(client)
            elif math.isinf(at):
                client.state = "off"
            else:
                client.state = "waiting"
                self._pause(client.site, at)

    def _begin_job(self, client: Participant) -> None:
        assert client.node is not None
        limit = self.settings.job_timeout
        if limit is None:
            limit = math.inf if self.clock.virtual else self.timeout
        job = Job(
            site=client.site,
            node=client.node,
            number=client.jobs,
            version=self.state.versions.current,
            sequence=self.state.next_sequence(),
            started=self.clock.now,
            deadline=self.clock.now + limit,
        )
        client.jobs += 1
        client.state = "busy"
        self.state.versions.acquire(job.version)
        self.state.log("dispatch", job.site, job.number, job.version)
        if self._send(job):
            self.state.jobs[job.sequence] = job
            self.clock.begin(job)
        else:
            self.state.versions.release(job.version)
            self._fail(job, "unreachable", f"no message can be pushed to node {job.node}")

    def _send(self, job: Job) -> bool:
        """Send a job's message to the client's node now, and tell whether that was possible."""
        node = self.state.roster.clients[job.site].node
        if self.settings.timing_only or node is None:
            return node is not None
        content = RecordDict(
            {
                self.settings.arrayrecord_key: self.state.versions.record(job.version),
                self.settings.configrecord_key: ConfigRecord(
                    {**self.train_config, "server-round": job.version + 1, "job": job.number}
                ),
            }
        )
        ttl = None if self.clock.virtual else job.deadline - job.started
        message_id = self.mailbox.send(Message(content, node, MessageType.TRAIN, ttl=ttl))
        job.node, job.message_id = node, message_id or ""
        return message_id is not None

    def _pause(self, site: str, until: float) -> None:
        self.clock.wake(Tick(until, TickKind.WAKE, site, self.state.next_sequence()))

    def _end_job(self, job: Job, tick: Tick, reply: Message | None) -> None:
        """Free the job's place and take its update, or count its failure."""
        sent = self.state.versions.arrays(job.version)
        self.state.versions.release(job.version)
        try:
            if tick.kind is TickKind.TIMEOUT:
                raise ReplyError("timeout", f"no reply {job.deadline - job.started:g} s after its dispatch")
            if self.settings.timing_only:
                update = Update()
            elif reply is None:
                raise ReplyError("timeout", f"no reply within {self.timeout:g} real seconds")
            else:
                update = read_update(
                    reply,
                    sent,
                    arrays_key=self.settings.arrayrecord_key,
                    examples_key=self.settings.weighted_by_key,
                    examples_needed=self.settings.weigh_by == "examples",
                    buffer_keys=self.settings.buffer_keys,
                )
        except ReplyError as error:
            self._fail(job, error.reason, str(error))
        else:
            self._accept(job, update, sent)

    def _accept(self, job: Job, update: Update, sent: Arrays) -> None:
        self.state.roster.clients[job.site].failures = 0
        self.state.roster.free(job.site, self.clock.now)
        tau = self.state.versions.current - job.version
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
        self.state.influence.received += 1
        self.rule.received(entry, sent)
        if self.settings.max_staleness is not None and tau > self.settings.max_staleness:
            self.state.influence.dropped["stale"] += 1
            self.state.log("drop", job.site, job.number, job.version, tau, reason="stale")
            return
        self.state.log("arrive", job.site, job.number, job.version, tau)
        displaced = self.state.buffer.add(entry)
        if displaced is not None:
            self.state.influence.replaced[displaced.site] += 1
            staleness = self.state.versions.current - displaced.version
            self.state.log("replace", displaced.site, displaced.job, displaced.version, staleness)

    def _fail(self, job: Job, reason: str, detail: str) -> None:
        """Count a failure and let the client pause, longer with each one in a row."""
        client = self.state.roster.clients[job.site]
        client.failures += 1
        client.state = "backoff"
        doublings = min(client.failures - 1, MOST_DOUBLINGS)
        self._pause(
            job.site,
            self.clock.now + min(self.settings.retry_limit, self.settings.retry_after * 2.0**doublings),
        )
        self.state.influence.failed[reason] += 1
        self._look_at_nodes = True
        self.state.log("fail", job.site, job.number, job.version, reason=reason)
        self.state.warn(f"{job.site} {reason}", f"job {job.number} of site '{job.site}' failed: {detail}")
        if reason == "dead-worker":
            raise self._stopped(
                f"{detail}\nA dead Ray worker stays in Flower's pool and fails every message that it gets: "
                "start the run again, or go on with it, with less memory in use if that ran out, or on the "
                "machines that are left"
            )
        connected = [other for other in self.state.roster.clients.values() if other.node is not None]
        limit = self.settings.give_up_after
        if connected and all(other.failures >= limit for other in connected):
            raise self._stopped(
                f"each of the {len(connected)} connected clients failed {limit} times in a row; the last "
                f"failure, of site '{job.site}': {detail}"
            )

    def _evaluate(self, version: int) -> None:
        """Evaluate a version that has just been published, if it is its turn."""
        if version % max(1, self.num_versions // 100) == 0 or version == self.num_versions:
            LOGGER.info("[VERSION %d/%d] time %.1f", version, self.num_versions, self.clock.now)
        if version % self.settings.evaluate_every == 0 or version == self.num_versions:
            if self.evaluation.wanted:
                self.evaluation.submit(version, self.state.versions.record(version))
            if self.clock.virtual:
                self._let_clients_evaluate(version)

    def _let_clients_evaluate(self, version: int) -> None:
        if self.settings.fraction_evaluate == 0 or self.settings.timing_only:
            return
        arrays = self.state.versions.record(version)
        messages = self.rule.configure_evaluate(version, arrays, self.evaluate_config, self.grid)
        training = {job.message_id: job.node for job in self.state.jobs.values() if job.message_id}
        replies = ask_free_clients(messages, training, self.mailbox, self.timeout, self.clock.virtual)
        metrics = self.rule.aggregate_evaluate(version, replies)
        if metrics is not None:
            self.state.client_metrics[version] = metrics

    def pack(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return everything that the rest of the run depends on."""
        return checkpoint.pack(self.state)

    def restore(self, arrays: dict[str, np.ndarray], state: dict[str, Any]) -> None:
        """Go on from a state; jobs that were in flight are sent again by ``complete``."""
        checkpoint.unpack(self.state, arrays, state)
        self.resumed = True
