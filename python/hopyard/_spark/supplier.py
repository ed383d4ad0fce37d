# SPDX-License-Identifier: Apache-2.0
"""Agents on the executors of a SparkSession.

The driver decides when an agent is needed and when not; `hopyard supply` brings us its orders. An agent is a Spark
job of one task, in a job group of its own, which takes all cores of its executor.
"""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from .._run import program as _program
from . import executor as _executor
from . import package_archive as _package_archive
from . import session as _session


def options(session: Any, project: _session.Project) -> list[str]:
    """What `hopyard run` is told of it."""
    context = _session.context_of(session)
    if _session.is_here(session):
        return []
    _Terms(context, project)  # a setting that makes no sense is said before there is a run
    return ["--engine", "session", "--address", _session.address(context)]


def parallel(session: Any, project: _session.Project) -> int | None:
    """How many trials it is to have at a time, where its executors are this machine; others say it when they supply."""
    context = _session.context_of(session)
    return _session.find(_session.PARALLEL, context.getConf(), project) if _session.is_here(session) else None


# ---- the supplier ------------------------------------------------------------------------------


_suppliers: dict[tuple[int, str], "_Supplier"] = {}
SETTLE_S = 10.0
BUSY_S = 2.0  # until an executor is asked again
WHY_MAX = 1000  # of a reason, which may be a line that an agent has written
LISTEN_MS = 2000  # for Spark to have heard of a loss itself
LAST_WORDS_S = 2.0  # for Spark to notice that an executor was lost
GOODBYE_S = 1.0  # for an agent whose driver has ended
LOOK_S = 1.0  # how often we look whether Spark is there, and how many executors, where nobody says it
STEADY_S = 5.0  # without a new one: no more are expected


def supply(session: Any, run: int, project: _session.Project, leaves: bool = False) -> None:
    """Starts agents for a run, from a thread, until that has ended. Those that leave do not hold executors' slots: what
    Spark feeds to them has to run there, too."""
    _suppliers[run, _session.folder_of(project)] = _Supplier(_session.context_of(session), run, project, leaves)


def settle(run: int, project: _session.Project) -> bool:
    """If the run has ended, waits for its jobs, so that a session stopped behind it has none to break off.

    Whether it had any from here.
    """
    supplier = _suppliers.get((run, _session.folder_of(project)))
    if supplier and supplier.join(SETTLE_S):
        del _suppliers[run, _session.folder_of(project)]
    return supplier is not None


class _Terms:
    """What a session is to give to a run."""

    def __init__(self, context: Any, project: _session.Project) -> None:
        self.executors = _session.executors(context, project)  # None: as many as come
        self.container = _session.container(context)
        self.offer = {"what": f"Spark {context.applicationId}", "note": _session.exposed(context),
                      "parallel": _session.find(_session.PARALLEL, context.getConf(), project) or 0}  # fmt: skip


class _Supplier:
    def __init__(self, context: Any, run: int, project: _session.Project, leaves: bool = False) -> None:
        from pyspark import cloudpickle

        cloudpickle.register_pickle_by_value(_executor)
        self._context, self._run, self._leaves = context, run, leaves
        others = any(number == run and folder != _session.folder_of(project) for number, folder in _suppliers)
        # Each project counts from 1.
        self._suffix = f"-of-{os.path.basename(_session.folder_of(project))}" if others else ""
        self._terms = _Terms(context, project)
        self._archive = context.broadcast(_package_archive.archive())
        self._profile: Any = None
        self._lock, self._profile_lock = threading.Lock(), threading.Lock()
        self._over = threading.Event()
        self._stopped: set[int] = set()  # agents that the driver wants no more
        self._agents: list[threading.Thread] = []
        self._program = subprocess.Popen(
            _program.command("supply", str(run), project=project),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        if sys.stderr.isatty():
            _silence(context)
        for target in (self._serve, self._mind):
            threading.Thread(target=target, name=f"hopyard-run-{run}{target.__name__}", daemon=True).start()

    def join(self, timeout: float) -> bool:
        """Waits a moment for the run's end, and if that has come, longer for that of its agents."""
        if not self._over.wait(1.0):
            return False
        _join(self._agents, timeout)
        return True

    def _mind(self) -> None:
        """Says how many agents there can be, again when more executors have come; and notices when Spark is gone."""
        said, since = (0, True), time.monotonic()
        while not self._over.is_set():
            if self._is_stopped():
                self._program.terminate()  # the driver hears by this that nobody starts its agents
                return
            count = self._terms.executors or max(said[0], self._listed())
            since = since if count == said[0] else time.monotonic()
            now = count, not self._terms.executors and (count == 0 or time.monotonic() - since < STEADY_S)
            if now != said and count:
                self._say({**self._terms.offer, "offer": count, "more": now[1]})
                said = now
            self._over.wait(LOOK_S)

    def _listed(self) -> int:
        try:
            return len(_session.listed(self._context))
        except Exception:  # whatever Spark raises while it is stopped: there are none then
            return 0

    def _whole_executor(self) -> Any:
        with self._profile_lock:
            self._profile = self._profile or self._make_profile()
            return self._profile

    def _make_profile(self) -> Any:
        from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

        needs = TaskResourceRequests().cpus(_session.cores(self._context))
        gpus = self._context.getConf().get("spark.executor.resource.gpu.amount", "")
        if gpus.isdigit() and int(gpus) > 0:
            needs.resource("gpu", int(gpus))
        return ResourceProfileBuilder().require(needs).build

    def _group(self, agent: int) -> str:
        return f"hopyard-run-{self._run}-agent-{agent}{self._suffix}"

    def _serve(self) -> None:
        try:
            for line in self._program.stdout or ():
                self._obey(json.loads(line))
        except Exception:
            if not self._is_stopped():  # then it is no wonder, and nobody can be asked for anything any more
                raise
        finally:
            self._leave()

    def _obey(self, order: dict[str, Any]) -> None:
        if "start" in order:
            self._stopped.discard(order["start"])
            self._in_thread(self._start, {**order, "container": self._terms.container, "leaves": self._leaves})
        else:
            self._stopped.add(order["stop"])
            threading.Thread(target=self._cancel, args=(order["stop"],), daemon=True).start()

    def _cancel(self, agent: int) -> None:
        """Ends its job, but where its executor was lost only when Spark has noticed that, and can say why."""
        until = time.monotonic() + LAST_WORDS_S
        while time.monotonic() < until and not self._reason(agent):
            if self._over.wait(LOOK_S / 10):
                return  # all jobs are ended
        try:
            self._context.cancelJobGroup(self._group(agent))
        except Exception:
            if not self._is_stopped():  # then there is nothing to end
                raise

    def _is_stopped(self) -> bool:
        """Its user may have called spark.stop(), or its JVM be gone; then there is nothing that we can start."""
        try:
            return self._context._jsc is None or bool(self._context._jsc.sc().isStopped())
        except Exception:  # whatever py4j raises when nobody answers
            return True

    def _leave(self) -> None:
        """The driver has ended, or hears by this that there is nobody any more who starts its agents."""
        self._over.set()
        self._program.terminate()
        self._program.wait()
        _join(self._agents, GOODBYE_S)
        if not self._is_stopped():
            self._cancel_what_is_left()
            self._archive.destroy()

    def _cancel_what_is_left(self) -> None:
        """A driver that was killed has told its agents nothing: they would wait for it."""
        for agent in self._agents:
            if agent.is_alive():
                self._context.cancelJobGroup(agent.name)

    def _in_thread(self, target: Any, order: dict[str, Any]) -> None:
        """Of Spark's kind: a job group is a matter of the thread that has set it."""
        from pyspark import InheritableThread

        thread = InheritableThread(target=target, args=(order,), name=self._group(order["start"]), daemon=True)
        thread.start()
        self._agents = [agent for agent in self._agents if agent.is_alive()] + [thread]

    def _start(self, order: dict[str, Any]) -> None:
        agent, why = order["start"], ""
        try:
            while not (agent in self._stopped or self._over.is_set()) and (why := self._job(order)) == _executor.BUSY:
                self._over.wait(BUSY_S)  # another run has an agent there; Spark cannot say when it is over
        except Exception as error:  # whatever Spark raises is why there is no agent, unless it is what we have told it
            why = self._reason(agent) or ("" if agent in self._stopped else _sentence(error))
        if why == _executor.LEFT:  # the driver knows it by its link from now on
            self._say({"over": agent, "why": "it has left its Spark task", "lives": True})
            return
        if why == _executor.LOST:
            why = self._reason(agent) or why
        died = _executor.KILLED in why  # while its executor lived: else that would not have told us
        self._say({"over": agent, "why": "" if why == _executor.BUSY else why[:WHY_MAX], "died": died})
        if self._is_stopped():
            self._program.terminate()

    def _job(self, order: dict[str, Any]) -> str:
        archive = self._archive
        self._context.setJobGroup(self._group(order["start"]), f"hopyard: run {self._run}, {order['name']}", True)
        # Data would lie in a file for a while.
        task = self._context.parallelize([0], 1).withResources(self._whole_executor())
        [why] = task.mapPartitions(lambda _: _executor.run(order, *archive.value)).collect()
        return why

    def _reason(self, agent: int) -> str | None:
        """What Spark knows of an agent's end that the job's own error does not say."""
        try:
            return next(filter(None, (_lost(*f) or _unfit(*f) for f in self._failures(agent))), None)
        except Exception:  # of Spark's, which may be about to stop: then the job's own error has to do
            return None

    def _failures(self, agent: int) -> Iterator[tuple[str, str]]:
        """Of its last job's task: where it was, and what Spark has to say."""
        spark, tracker = self._context._jsc.sc(), self._context.statusTracker()
        spark.listenerBus().waitUntilEmpty(LISTEN_MS)
        job = tracker.getJobInfo(max(tracker.getJobIdsForGroup(self._group(agent))))
        for stage in job.stageIds if job else ():
            tasks = spark.statusStore().taskList(stage, 0, 10)
            for task in (tasks.apply(i) for i in range(tasks.size())):
                if task.errorMessage().isDefined():
                    yield f"executor {task.executorId()} on {task.host()}", task.errorMessage().get()

    def _say(self, word: dict[str, Any]) -> None:
        assert self._program.stdin is not None
        with self._lock:
            try:
                self._program.stdin.write(json.dumps(word) + "\n")
                self._program.stdin.flush()
            except (BrokenPipeError, ValueError):  # the run has ended: nobody asks any more
                return


# ---- what Spark says ---------------------------------------------------------------------------


def _sentence(error: Exception) -> str:
    """Of what comes through py4j the line that says it."""
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage() if java is not None else error).strip()
    text = text.rpartition("Job aborted due to stage failure: ")[2]
    text = re.sub(r"^\[\w+\] | SQLSTATE: \w+$", "", text)  # "[SPARK_JOB_CANCELLED] Job 3 cancelled … SQLSTATE: XXKDA"
    return f"Spark: {_first_line(text)}" if text else f"Spark: {type(error).__name__}"


def _lost(where: str, why: str) -> str | None:
    """An executor, as Spark and YARN put it: "Container killed by YARN for …"."""
    reason = _first_line(why.partition("Reason: ")[2] or why)
    return f"{where} was lost: {reason}" if "ExecutorLostFailure" in why else None


def _unfit(where: str, why: str) -> str | None:
    """A Python that Spark refuses before our task begins, or that cannot read Spark's own modules."""
    ours = "{}.{}".format(*sys.version_info)
    remedy = f"; let PYSPARK_PYTHON name a Python {ours} that executors have, or send an environment along"
    if version := re.search(r"PYTHON_VERSION_MISMATCH\]\D*([\d.]+)", why):
        return f"{where}: its Python is {version[1]}, and that of this session {ours}{remedy}"
    if said := re.search(r"Error from python worker:\n(?:.*\n)*? +(\S.*)\nPYTHONPATH was:", why):
        return f"{where}: its Python cannot start Spark's worker: {said[1][:400]}{remedy}"
    return None


def _join(threads: list[threading.Thread], timeout: float) -> None:
    """All of them together have so long."""
    end = time.monotonic() + timeout
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))


def _first_line(text: str) -> str:
    return text.splitlines()[0][:400]


def _silence(context: Any) -> None:
    """Spark's progress bar, which would be written over the run's table, for as long as the session lasts."""
    bar = context._jsc.sc().progressBar()
    if bar.isDefined():
        bar.get().stop()
