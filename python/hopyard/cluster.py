# SPDX-License-Identifier: Apache-2.0
"""A TensorFlow cluster: parameter servers, a chief, workers, each with its part of one function.

    from hopyard import cluster

    def main_fun(args, ctx):
        import tensorflow as tf
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        ...

    nodes = cluster.run(main_fun, args, workers=2, ps=1)
    nodes.shutdown()

Every node calls `main_fun(args, ctx)`, with TF_CONFIG set; `ctx` says which node it is (`job_name`, `task_index`,
`executor_id`) and where all are (`cluster_spec`). A list of `args` is its sys.argv, too. Where nodes fail, the others
are ended at once, and hopyard.TrialsFailed has the traceback. Parameter servers end when chief and workers are done.

A cluster is a run like any other: it is in `hopyard ls`, has a log for each node (`hopyard logs RUN worker-0`), and
outlives this process. It may have `memory`, `timeout`, `retries` (of all nodes together), `gpus` (for each node that
is no parameter server), `name`, `project`, `tensorboard`, `hosts`, `spark` and `seed`, as hopyard.experiment has them, and

workers        how many workers there are
ps             how many parameter servers
chief          with a node "chief" besides (or "master": by that name)
evaluator      with a node "evaluator" besides
feed           rows come by `train` and `inference`: main_fun takes them by ctx.get_data_feed()
release_port   as TensorFlowOnSpark has it; a node's port is held either way, and TensorFlow may listen there all the same.
               For what does not share it, ctx.release_port() gives it up
"""

import contextlib
import itertools
import os
import pickle
import secrets
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from . import _bundle, _code, _feed, _hopyard, _node, _program, _run, _show, _spark
from ._errors import Error, FileNotFound, RunError, TrialsFailed
from ._file import open_url
from ._result import Result, Trial, load
from ._run import option

__all__ = ["Cluster", "run"]

COMPLETE = "all nodes have joined"  # says the driver
END_S = 5.0  # for a run to have heard of its node's end


def run(
    main_fun: Callable[[Any, Any], Any], args: Any = None, workers: int = 1, ps: int = 0,
    chief: bool | str = False, evaluator: bool = False, feed: bool = False, release_port: bool = True,
    default_fs: str = "file://",
    env: Mapping[str, object] | None = None, **settings: Any,
) -> "Cluster":  # fmt: skip
    """Starts a cluster, and returns at once; `shutdown` waits for its end, `results` for what nodes return."""
    if not callable(main_fun):
        raise Error(f"a function main_fun(args, ctx) is needed, and {main_fun!r:.60} is none")
    common = _run.settings_of(settings, "a cluster", "hopyard.cluster")
    head = {"master" if chief == "master" else "chief": 1} if chief else {}
    roles = {"ps": ps, **head, "evaluator": int(bool(evaluator)), "worker": workers}
    _check(roles)
    token = f"hopyard-{secrets.token_hex(8)}" if feed else ""
    call = _node.Call(main_fun, args, default_fs, token)
    title = f"{_bundle.name_of(main_fun)}()"
    bundle = _bundle.make(call, common.metric, "max", optional=True, ranks=True, preload=_code.preload(main_fun))
    words = [
        "--function", "-", "--title", title, "--metric-optional",
        *option("roles", ",".join(f"{role}={count}" for role, count in roles.items())), *(["--fed"] if feed else []),
        *(word for name, value in (env or {}).items() for word in option("env", f"{name}={value}")),
    ]  # fmt: skip
    program = _run.python("hopyard._trial")
    number, address = _run.start(words, common, program, bundle, command="train", leaves=feed)
    return Cluster(number, common.project, address, {role: count for role, count in roles.items() if count}, token)


def _check(roles: Mapping[str, int]) -> None:
    for role, count in roles.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise Error(f"the number of nodes '{role}' is {count!r}; a whole number from 0 on is needed")
    if not any(count for role, count in roles.items() if role in _node.RANKS):
        raise Error("a cluster needs a chief or a worker")


class Cluster:
    """One that was started."""

    def __init__(self, number: int, project: Any, address: str | None, roles: Mapping[str, int], feed: str) -> None:
        self.run = number
        self.project = project
        self.roles = dict(roles)
        self._address = address
        self._feed = feed
        self._end: Result | None = None
        self._tie = _tie(number, project) if feed else None

    def __repr__(self) -> str:
        nodes = ", ".join(f"{count} {role}" for role, count in self.roles.items())
        return f"<cluster: run {self.run}, {nodes}>"

    def tensorboard_url(self) -> str | None:
        """The address of its TensorBoard; None where there is none."""
        return self._address

    def hubs(self) -> list[str]:
        """The names at which nodes that compute take rows."""
        if not self._feed:
            raise Error("nothing is fed to this cluster; start it with feed=True (input_mode=InputMode.SPARK)")
        ranks = [role for role in self.roles if role in _node.RANKS]
        return [_node.hub_name(self._feed, role, i) for role in ranks for i in range(self.roles[role])]

    def is_running(self) -> bool:
        return load(self.run, self.project).state == "running"

    def wait_for_nodes(self, timeout: float) -> None:
        """Until all have joined, and can be fed."""
        end = time.monotonic() + timeout
        while COMPLETE not in load(self.run, self.project).notes:
            self._check()
            if time.monotonic() > end:
                self.stop()
                raise Error(f"the nodes of run {self.run} were not all there after {timeout:g} s, and it was stopped")
            time.sleep(0.05)

    def train(self, data: Iterable[Any], num_epochs: int = 1, feed_timeout: float = 600, qname: str = "input") -> None:
        """Feeds rows to chief and workers, a piece to each in turn; returns when they are taken, or not wanted any more.

        `data` is any iterable, or a tf.data.Dataset; it is gone through once for each epoch.
        """
        with self.feeding(), contextlib.ExitStack() as ends:
            sources = [ends.enter_context(self._source(name, qname, feed_timeout)) for name in self.hubs()]
            _feed_all(sources, (rows_of(data) for _ in range(num_epochs)))

    def inference(self, data: Iterable[Any], feed_timeout: float = 600, qname: str = "input") -> Iterator[Any]:
        """A result for each row, in their order: by one of the nodes."""
        name = self.hubs()[0]
        with self.feeding():
            yield from _feed.inferred(name, self._source(name, qname, feed_timeout, results=True), rows_of(data))

    def _source(self, name: str, queue: str, timeout: float, results: bool = False) -> _hopyard.Source:
        """As soon as the node is there."""
        while True:
            try:
                return _hopyard.Source(name, queue, results, patience=timeout)
            except ConnectionRefusedError:
                self._check()
                time.sleep(0.02)

    def check_nobody(self) -> None:
        """Some rows found nobody to take them: that is fine where a node has ended well."""
        result = load(self.run, self.project)
        if result.state == "failed":
            self._wait(0)
        ranks = [trial for trial in result.trials if name_of(trial).rpartition("-")[0] in _node.RANKS]
        if not any(trial.state == "done" for trial in ranks):
            raise Error(
                "rows were on a machine that has no node of the cluster; give it as many nodes as there are executors, "
                "so that each has one"
            )

    def _check(self) -> None:
        """Raises what has become of a run that is over."""
        result = load(self.run, self.project, self._address)
        if result.state != "running":
            self._wait(0)
            raise RunError(f"the cluster of run {self.run} is over: nobody takes rows any more", result)

    @contextlib.contextmanager
    def feeding(self) -> Iterator[None]:
        """For who feeds: what a feeder has to say of a node's end is less than what the node has."""
        try:
            yield
        except Exception:
            end = time.monotonic() + END_S
            while time.monotonic() < end and self.is_running():
                time.sleep(0.1)
            if load(self.run, self.project).state == "failed":
                self._wait(0)
            raise

    def shutdown(self, grace_secs: float = 0, timeout: float = 3 * 24 * 3600) -> None:
        """Waits until the nodes have done what they have to do; raises hopyard.TrialsFailed where one has failed.

        Where rows are fed, no more will come. After `timeout` seconds (0: never) nodes are ended.
        """
        if self._feed and self._end is None and self.is_running():
            _program.call("stop", "--feed", str(self.run), project=self.project)
        self._wait(timeout)

    def results(self) -> dict[str, Any]:
        """What main_fun returned, by the node's name ("chief-0", "worker-0"); waits for it.

        Nodes that served the others to the end are not in it: there it did not return.
        """
        kept = {name_of(trial): _returned(trial) for trial in self._wait(0).trials}
        return {name: value[0] for name, value in kept.items() if value}

    def stop(self) -> None:
        """Ends all nodes now."""
        _program.call("stop", str(self.run), project=self.project)

    def _wait(self, timeout: float) -> Result:
        if self._end is None:
            with _deadline(self, timeout) as passed:
                status = _show.show(self.run, self.project, training=True)
            had_session = _spark.settle(self.run, self.project)
            result = load(self.run, self.project, self._address)
            if passed():
                raise RunError(f"the cluster of run {self.run} was not done after {timeout:g} s, and was stopped", result)
            if self._tie is not None and result.state != "running":
                self._tie.communicate()
            self._end = conclude(result, status, had_session)
        return self._end


def _tie(run: int, project: Any) -> subprocess.Popen[bytes]:
    """By which the run notices that this process, from which its rows come, is gone: it would wait for more."""
    command = _program.command("supply", str(run), "--feeds", project=project)
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)


def rows_of(data: Any) -> Iterable[Any]:
    """A tf.data.Dataset gives NumPy's."""
    return data.as_numpy_iterator() if hasattr(data, "as_numpy_iterator") else data


def _feed_all(sources: list[_hopyard.Source], epochs: Iterable[Iterable[Any]]) -> None:
    """A piece to each in turn; one that has had enough is left out."""
    turns = itertools.cycle(range(len(sources)))
    open_ones = set(range(len(sources)))
    for rows in epochs:
        for piece in _feed.chunks(rows, sources):
            while open_ones and (turn := next(turns)) not in open_ones:
                continue
            if not open_ones:
                return
            if not sources[turn].put(piece):
                open_ones.discard(turn)
    for i in open_ones:
        sources[i].wait_until_taken()


@contextlib.contextmanager
def _deadline(cluster: Cluster, seconds: float):  # type: ignore[no-untyped-def]
    """Stops it when it is over; what is yielded says whether that was."""
    import threading

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


def conclude(result: Result, status: int, had_session: bool) -> Result:
    """A cluster is done when all its nodes are."""
    failed = [trial for trial in result.trials if trial.state == "failed"]
    if failed and result.state in ("failed", "done"):
        why = result.message or f"{name_of(failed[0])} failed: {failed[0].message}"
        raise TrialsFailed(f"run {result.run}: {why}\n{failed[0].error}", result)
    return _run.conclude(result, status, had_session)


def _returned(trial: Trial) -> tuple[Any] | None:
    try:
        with open_url(os.path.join(trial.logdir, "result.pickle"), "r") as file:
            return (pickle.load(file)[1],)
    except FileNotFound:
        return None
