# SPDX-License-Identifier: Apache-2.0
"""TensorFlow clusters: parameter servers, a chief and workers that run one function.

    from hopyard import cluster

    def main_fun(args, ctx):
        import tensorflow as tf
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        ...

    nodes = cluster.run(main_fun, args, workers=2, ps=1)
    nodes.shutdown()

Every node calls `main_fun(args, ctx)`, with TF_CONFIG set; `ctx` has the node's `job_name`, `task_index` and
`executor_id`, and the addresses of all nodes (`cluster_spec`). If `args` is a list, it becomes sys.argv. If a node
fails, the others are ended at once, and hopyard.TrialsFailed has the traceback. Parameter servers end when chief and
workers are done.

A cluster is a run: `hopyard ls` lists it, each node has a log (`hopyard logs RUN worker-0`), and it outlives this
process. It has these settings of hopyard.experiment: `memory`, `timeout`, `retries` (of all nodes together), `gpus`
(for each node that is not a parameter server), `max_transfer` (of each node), `disk_timeout`, `oversubscribe`, `name`,
`project`, `tensorboard`, `hosts`, `spark` and `seed`; and

workers        the number of workers
ps             the number of parameter servers
chief          True: an additional node "chief" ("master": with that name)
evaluator      True: an additional node "evaluator"
feed           True: `train` and `inference` feed rows; main_fun reads them with ctx.get_data_feed()
release_port   False: ctx.tmp_socket is the socket that reserves the node's port, as in TensorFlowOnSpark. The port is
               reserved either way, and TensorFlow can listen on it; call ctx.release_port() before other code binds it
"""

import contextlib
import itertools
import os
import pickle
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Unpack

from . import _hopyard
from ._base.errors import Error, FeedTimeout, FileNotFound, RunError, TrialsFailed
from ._base.files import open_own
from ._code import bundle as _bundle
from ._code import references as _references
from ._feed import feeders as _feeders
from ._run import display as _display
from ._run import driver as _driver
from ._run import program as _program
from ._run import start as _start
from ._run import tensorboard_process as _tensorboard_process
from ._run.result import Result, Trial, load
from ._run.settings import Settings, for_training
from ._spark import supplier as _supplier
from ._trial import cluster_node as _cluster_node

__all__ = ["Cluster", "run"]

ADDRESSES = "nodes: "
END_S = 5.0  # until a run has noticed its node's end


def run(
    main_fun: Callable[[Any, Any], Any], args: Any = None, workers: int = 1, ps: int = 0,
    chief: bool | str = False, evaluator: bool = False, feed: bool = False, release_port: bool = True,
    default_fs: str = "file://",
    env: Mapping[str, object] | None = None, **settings: Unpack[Settings],
) -> "Cluster":  # fmt: skip
    """Start a cluster, and return at once; `shutdown` waits for its end, `results` for the nodes' return values.

    main_fun: main_fun(args, ctx) runs on every node; ctx has its job_name, task_index and cluster_spec
    args: its first argument
    workers, ps: the number of workers and parameter servers
    chief: True: an additional node "chief" ("master": with that name)
    evaluator: True: an additional node for evaluation
    feed: True: `train` and `inference` feed rows to workers
    release_port, default_fs: as in TensorFlowOnSpark
    env: environment variables for the nodes
    settings: those of hopyard.experiment, for the whole cluster; help(hopyard.cluster) lists them
    """
    if not callable(main_fun):
        raise Error(f"{main_fun!r:.60} is not a function; main_fun(args, ctx) is required")
    common = for_training(settings, "a cluster", "hopyard.cluster")
    head = {"master" if chief == "master" else "chief": 1} if chief else {}
    roles = {"ps": ps, **head, "evaluator": int(bool(evaluator)), "worker": workers}
    _check(roles)
    token = f"hopyard-{secrets.token_hex(8)}" if feed else ""
    call = _cluster_node.Call(main_fun, args, default_fs, token, release_port)
    title = f"{_bundle.name_of(main_fun)}()"
    bundle = _bundle.make(
        call, common["metric"], "max", optional=True, ranks=True, preload=_references.preload(main_fun)
    )
    variables = [("env", f"{name}={value}") for name, value in (env or {}).items()]
    nodes = {role: count for role, count in roles.items() if count}
    started = _start.start(
        variables, common, _start.python("hopyard._trial"), bundle, command="train", leaves=feed, title=title,
        metric_optional=True, roles=list(nodes.items()), fed=feed,
    )  # fmt: skip
    return Cluster(started, common["project"], nodes, token)


def _check(roles: Mapping[str, int]) -> None:
    for role, count in roles.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise Error(f"the number of '{role}' nodes is {count!r}; it must be a whole number, 0 or more")
    if not any(count for role, count in roles.items() if role in _cluster_node.RANKS):
        raise Error("a cluster needs a chief or a worker")


class Cluster:
    """A cluster that was started."""

    def __init__(self, started: _start.Started, project: Any, roles: Mapping[str, int], feed: str) -> None:
        self.run = started.run
        self.project = project
        self.roles = dict(roles)
        self._address = started.tensorboard
        self._feed = feed
        self._end: Result | None = None
        self._driver: _hopyard.Driver | None = None  # None: the run has ended
        self._receiving = threading.Lock()
        self._have_joined = False
        self._use(started.driver)

    def __repr__(self) -> str:
        nodes = ", ".join(f"{count} {role}" for role, count in self.roles.items())
        return f"<cluster: run {self.run}, {nodes}>"

    def tensorboard_url(self) -> str | None:
        """The address of its TensorBoard; None without a TensorBoard."""
        return self._address

    def hubs(self) -> list[str]:
        """The names of the hubs that receive the rows of chief and workers."""
        if not self._feed:
            raise Error("this cluster is not fed; start it with feed=True (input_mode=InputMode.SPARK)")
        ranks = [role for role in self.roles if role in _cluster_node.RANKS]
        return [_cluster_node.hub_name(self._feed, role, i) for role in ranks for i in range(self.roles[role])]

    def _use(self, driver: _hopyard.Driver | None) -> None:
        """Receives events of this driver. The feed ends with the connection, and so with this process."""
        self._driver = driver
        if driver:
            driver.watch()
        if driver and self._feed:
            driver.hold_feed()

    def _receive(self, timeout: float) -> bool:
        """Waits for an event of the driver; False after the timeout, or if the run has ended."""
        with self._receiving:
            if self._driver is None:
                return False
            try:
                event = self._driver.next(max(0.0, timeout))
            except TimeoutError:
                return False
            update = {"last": True} if event is None else event.get("update", {})
            self._have_joined = self._have_joined or bool(update.get("nodes_joined"))
            if update.get("last"):
                self._driver = None
            return True

    def _has_ended(self) -> bool:
        """As far as the driver has reported it."""
        while self._receive(0):
            continue
        return self._driver is None

    def is_running(self) -> bool:
        if self._has_ended():
            self._use(_driver.connect(self.run, self.project))  # it may have been resumed
        return self._driver is not None

    def has_failed(self) -> bool:
        return load(self.run, self.project).state == "failed"

    def wait_for_nodes(self, timeout: float) -> None:
        """Waits until all nodes have joined, and can be fed."""
        end = time.monotonic() + timeout
        while not self._nodes_have_joined():
            self._check()
            if time.monotonic() > end:
                self.stop()
                raise Error(f"not all nodes of run {self.run} had joined after {timeout:g} s; it was stopped")
            self._receive(min(end - time.monotonic(), 1.0))

    def _nodes_have_joined(self) -> bool:
        """As the driver has reported."""
        if not self._have_joined and self._has_ended():  # a run that is done may have ended before the connection
            self._have_joined = load(self.run, self.project).state == "done"
        return self._have_joined

    def addresses(self) -> list[tuple[str, int, str, int]]:
        """(role, index, address, port) of each node, as in the nodes' own cluster_spec; empty until all have joined."""
        found: dict[str, tuple[str, int, str, int]] = {}
        for note in load(self.run, self.project).notes:
            words = note.removeprefix(ADDRESSES).split(", ") if note.startswith(ADDRESSES) else []
            for name, _, address in (word.partition(" at ") for word in words):
                (role, _, index), (host, _, port) = name.rpartition("-"), address.rpartition(":")
                found[name] = role, int(index), host, int(port)  # the last address of a node that was restarted
        return list(found.values())

    def train(self, data: Iterable[Any], num_epochs: int = 1, feed_timeout: float = 600, qname: str = "input") -> None:
        """Feeds rows to chief and workers in turn, in chunks; returns when all are taken, or the nodes want no more.

        `data` is any iterable, or a tf.data.Dataset; it is iterated once per epoch.
        """
        with self.feeding(), contextlib.ExitStack() as ends:
            sources = [ends.enter_context(self._source(name, qname, feed_timeout)) for name in self.hubs()]
            try:
                _feed_all(sources, (rows_of(data) for _ in range(num_epochs)))
            except Error:
                if any(source.timed_out for source in sources):
                    raise self.unread(feed_timeout) from None
                raise

    def inference(self, data: Iterable[Any], feed_timeout: float = 600, qname: str = "input") -> Iterator[Any]:
        """A result for each row, in order, from one of the nodes."""
        name = self.hubs()[0]
        with self.feeding():
            yield from _feeders.inferred(name, self._source(name, qname, feed_timeout, results=True), rows_of(data))

    def _source(self, name: str, queue: str, timeout: float, results: bool = False) -> _hopyard.Source:
        """Connects to a node's hub, as soon as it exists."""
        while True:
            try:
                return _hopyard.Source(name, queue, results, patience=timeout)
            except ConnectionRefusedError:
                self._check()
                time.sleep(0.02)

    def unread(self, timeout: float) -> FeedTimeout:
        """The error if nodes take no rows."""
        return FeedTimeout(
            f"a node of run {self.run} took no rows for {timeout:g} s (feed_timeout); see its output with "
            f"`hopyard logs {self.run}`"
        )

    def check_missing_node(self) -> None:
        """Some rows found no node on their machine: that is valid only if a node has finished."""
        result = load(self.run, self.project)
        if result.state == "failed":
            self._wait(0)
        ranks = [trial for trial in result.trials if name_of(trial).rpartition("-")[0] in _cluster_node.RANKS]
        if not any(trial.state == "done" for trial in ranks):
            raise Error(
                "rows were on a machine without a node of the cluster; start as many nodes as there are executors, "
                "so that each has one"
            )

    def _check(self) -> None:
        """Raises an error if the run has ended."""
        if self.is_running():
            return
        result = load(self.run, self.project, self._address)
        self._wait(0)
        raise RunError(f"the cluster of run {self.run} has ended and takes no more rows", result)

    @contextlib.contextmanager
    def feeding(self) -> Iterator[None]:
        """A context for feeding: if a node has failed, its error is raised instead of the feeder's."""
        try:
            yield
        except FeedTimeout:
            raise
        except Exception:
            self._await_end(END_S)
            if failure := self._failure():
                raise failure from None
            raise

    def _await_end(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self._has_ended():
            self._receive(end - time.monotonic())

    def _failure(self) -> Error | None:
        """The error of its nodes, if the run has failed."""
        if self.has_failed():
            try:
                self._wait(0)
            except Error as error:
                return error
        return None

    def shutdown(self, grace_secs: float = 0, timeout: float = 3 * 24 * 3600) -> None:
        """Waits until the nodes are done; raises hopyard.TrialsFailed if one has failed.

        If rows are fed, this is the end of the feed. After `timeout` seconds (0: never) nodes are ended. Its
        TensorBoard ends; `hopyard tensorboard RUN` starts another.
        """
        try:
            if self._feed and self._end is None and self.is_running():
                _program.call("stop", "--feed", str(self.run), project=self.project)
            self._wait(timeout)
        finally:
            _tensorboard_process.stop(self.run, self.project)

    def results(self) -> dict[str, Any]:
        """The return values of main_fun by node ("chief-0", "worker-0"); waits for them.

        Nodes that served others until the end are not in it, because main_fun did not return there.
        """
        kept = {name_of(trial): _returned(trial) for trial in self._wait(0).trials}
        return {name: value[0] for name, value in kept.items() if value}

    def stop(self) -> None:
        """Ends all nodes now."""
        _program.call("stop", str(self.run), project=self.project)

    def _wait(self, timeout: float) -> Result:
        if self._end is None:
            with _deadline(self, timeout) as passed:
                status = self._show()
            had_session = _supplier.settle(self.run, self.project)
            result = load(self.run, self.project, self._address)
            if passed():
                raise RunError(
                    f"the cluster of run {self.run} was not done after {timeout:g} s; it was stopped", result
                )
            self._end = conclude(result, status, had_session, bool(self._feed))
        return self._end


    def _show(self) -> int:
        """Shows the run until it ends; for one that has failed already, the exception has the reason."""
        return 1 if self.has_failed() else _display.show(self.run, self.project, training=True, is_fed=bool(self._feed))


def rows_of(data: Any) -> Iterable[Any]:
    """An iterable of rows; a tf.data.Dataset yields NumPy values."""
    rows: Iterable[Any] = data.as_numpy_iterator() if hasattr(data, "as_numpy_iterator") else data
    return rows


def _feed_all(sources: list[_hopyard.Source], epochs: Iterable[Iterable[Any]]) -> None:
    """A chunk to each in turn; sources that want no more are skipped."""
    turns = itertools.cycle(range(len(sources)))
    open_ones = set(range(len(sources)))
    for rows in epochs:
        for chunk in _feeders.chunks(rows, sources):
            while open_ones and (turn := next(turns)) not in open_ones:
                continue
            if not open_ones:
                return
            if not sources[turn].put(chunk):
                open_ones.discard(turn)
    for i in open_ones:
        sources[i].wait_until_taken()


@contextlib.contextmanager
def _deadline(cluster: Cluster, seconds: float) -> Iterator[Callable[[], bool]]:
    """Stops the cluster after so many seconds; yields a function that returns whether they have passed."""
    if not seconds:
        yield lambda: False
        return
    timer = threading.Timer(seconds, cluster.stop)
    timer.daemon = True
    end = time.monotonic() + seconds
    timer.start()
    try:
        yield lambda: time.monotonic() >= end
    finally:
        timer.cancel()


def name_of(trial: Trial) -> str:
    return str(trial.params.get("node", trial.number - 1))


def conclude(result: Result, status: int, had_session: bool, is_fed: bool = False) -> Result:
    """A cluster is done when all its nodes are."""
    failed = [trial for trial in result.trials if trial.state == "failed"]
    if failed and result.state in ("failed", "done"):
        why = result.message or f"{name_of(failed[0])} failed: {failed[0].message}"
        raise TrialsFailed(f"run {result.run}: {why}\n{failed[0].error}", result)
    return _start.conclude(result, status, had_session, is_fed)


def _returned(trial: Trial) -> tuple[Any] | None:
    try:
        with open_own(os.path.join(trial.logdir, "result.pickle")) as file:
            return (pickle.load(file)[1],)
    except FileNotFound:
        return None
