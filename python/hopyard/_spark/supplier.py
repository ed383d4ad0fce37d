# SPDX-License-Identifier: Apache-2.0
"""Starts agents on the executors of a SparkSession.

The driver decides when an agent is needed, and sends orders. An agent is a Spark job with one task
and a separate job group, which occupies all cores of its executor.
"""

import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from .._run import driver as _driver
from . import executor as _executor
from . import package_archive as _package_archive
from . import session as _session


def address(session: Any, project: _session.Project) -> str:
    """The address at which the session's executors reach this machine; "" if they are on this machine."""
    context = _session.context_of(session)
    if _session.is_local(session):
        return ""
    _Offer(context, project)  # an invalid setting is an error before the run exists
    return _session.address(context)


def parallel(session: Any, project: _session.Project) -> int | None:
    """The number of trials at a time, if the session is local; other sessions send it with their offer."""
    context = _session.context_of(session)
    return _session.find(_session.PARALLEL, context.getConf(), project) if _session.is_local(session) else None


# ---- the supplier ------------------------------------------------------------------------------


_suppliers: dict[tuple[int, str], "Supplier"] = {}
SETTLE_S = 10.0
BUSY_S = 2.0  # before a busy executor is tried again
WHY_MAX = 1000  # bytes of a reason, which may be a line of an agent's output
LISTEN_MS = 2000  # for Spark's listeners to see a loss
LOSS_NOTICE_S = 2.0  # for Spark to notice that an executor was lost
AGENT_EXIT_S = 1.0  # for an agent to exit after its driver
POLL_S = 1.0  # between checks of Spark's state and its number of executors
STEADY_S = 5.0  # without a new executor: no more are expected


def supply(session: Any, run: int, project: _session.Project, leaves: bool = False) -> None:
    """Starts agents for a run, in a thread, until the run has ended. Agents that leave their tasks do not occupy the
    executors' slots, which the tasks that feed them need."""
    _suppliers[run, _session.directory_of(project)] = Supplier(_session.context_of(session), run, project, leaves)


def settle(run: int, project: _session.Project) -> bool:
    """If the run has ended, waits for its jobs, so that stopping the session interrupts none.

    Returns whether this process supplied the run.
    """
    supplier = _suppliers.get((run, _session.directory_of(project)))
    if supplier and supplier.join(SETTLE_S):
        del _suppliers[run, _session.directory_of(project)]
    return supplier is not None


class _Offer:
    """What a session offers to a run."""

    def __init__(self, context: Any, project: _session.Project) -> None:
        self.executors = _session.executors(context, project)  # None: not fixed
        self.container = _session.container(context)
        self.what = f"Spark {context.applicationId}"
        self.note = _session.exposed(context)
        self.parallel = _session.find(_session.PARALLEL, context.getConf(), project) or 0


class Supplier:
    """Starts and cancels the agents of one run."""

    def __init__(self, context: Any, run: int, project: _session.Project, leaves: bool = False) -> None:
        from pyspark import cloudpickle

        cloudpickle.register_pickle_by_value(_executor)
        self._context, self._run, self._leaves = context, run, leaves
        others = any(number == run and folder != _session.directory_of(project) for number, folder in _suppliers)
        # Runs are numbered per project.
        self._suffix = f"-of-{os.path.basename(_session.directory_of(project))}" if others else ""
        self._offer = _Offer(context, project)
        self._archive = context.broadcast(_package_archive.archive())
        self._profile: Any = None
        self._profile_lock = threading.Lock()
        self._over = threading.Event()
        self._stopped: set[int] = set()  # agents that the driver no longer needs
        self._agents: list[threading.Thread] = []
        self._driver = _driver.connect(run, project)
        if sys.stderr.isatty():
            _silence(context)
        for target in (self._serve, self._watch_executors):
            threading.Thread(target=target, name=f"hopyard-run-{run}{target.__name__}", daemon=True).start()

    def join(self, timeout: float) -> bool:
        """Waits a moment for the run's end, and then longer for that of its agents."""
        if not self._over.wait(1.0):
            return False
        _join(self._agents, timeout)
        return True

    def _watch_executors(self) -> None:
        """Offers as many agents as there are executors, again when their number changes; notices when Spark has
        stopped."""
        offered, since = (0, True), time.monotonic()
        while not self._over.is_set():
            if self._is_stopped():
                self._disconnect()  # tells the driver that its supplier is gone
                return
            count = self._offer.executors or max(offered[0], self._listed())
            since = since if count == offered[0] else time.monotonic()
            now = count, not self._offer.executors and (count == 0 or time.monotonic() - since < STEADY_S)
            if now != offered and count:
                if self._driver:
                    self._driver.supply(self._offer.what, count, self._offer.parallel, self._offer.note, more=now[1])
                offered = now
            self._over.wait(POLL_S)

    def _listed(self) -> int:
        try:
            return len(_session.listed(self._context))
        except Exception:  # Spark raises various errors while it stops: there are no executors then
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
            while self._driver and (event := self._driver.next()) is not None:
                self._execute(event)
        except Exception:
            if not self._is_stopped():  # errors are expected once Spark has stopped
                raise
        finally:
            self._close()

    def _execute(self, order: dict[str, Any]) -> None:
        if "start" in order:
            self._stopped.discard(order["start"])
            self._in_thread(self._start, {**order, "container": self._offer.container, "leaves": self._leaves})
        elif "stop" in order:
            self._stopped.add(order["stop"])
            threading.Thread(target=self._cancel, args=(order["stop"],), daemon=True).start()

    def _cancel(self, agent: int) -> None:
        """Cancels the agent's job. If its executor was lost, waits until Spark has noticed, so that the reason is
        known."""
        until = time.monotonic() + LOSS_NOTICE_S
        while time.monotonic() < until and not self._reason(agent):
            if self._over.wait(POLL_S / 10):
                return  # all jobs are cancelled
        try:
            self._context.cancelJobGroup(self._group(agent))
        except Exception:
            if not self._is_stopped():  # then there is nothing to cancel
                raise

    def _is_stopped(self) -> bool:
        """Whether the user has called spark.stop(), or the JVM is gone: no agents can be started then."""
        try:
            return self._context._jsc is None or bool(self._context._jsc.sc().isStopped())
        except Exception:  # py4j raises various errors if the JVM does not answer
            return True

    def _close(self) -> None:
        """Ends the connection to the driver, which may have ended, and cancels the agents that are left."""
        self._over.set()
        self._disconnect()
        _join(self._agents, AGENT_EXIT_S)
        if not self._is_stopped():
            self._cancel_remaining()
            self._archive.destroy()

    def _cancel_remaining(self) -> None:
        """Agents of a driver that was killed would wait for it."""
        for agent in self._agents:
            if agent.is_alive():
                self._context.cancelJobGroup(agent.name)

    def _in_thread(self, target: Any, order: dict[str, Any]) -> None:
        """In an InheritableThread, because a job group belongs to the thread that sets it."""
        from pyspark import InheritableThread

        thread = InheritableThread(target=target, args=(order,), name=self._group(order["start"]), daemon=True)
        thread.start()
        self._agents = [agent for agent in self._agents if agent.is_alive()] + [thread]

    def _start(self, order: dict[str, Any]) -> None:
        agent, why = order["start"], ""
        try:
            while not (agent in self._stopped or self._over.is_set()) and (why := self._job(order)) == _executor.BUSY:
                self._over.wait(BUSY_S)  # another run has an agent there; Spark does not report its end
        except Exception as error:  # the reason why there is no agent, unless we have cancelled it
            why = self._reason(agent) or ("" if agent in self._stopped else error_text(error))
        if why == _executor.LEFT:  # the driver has a connection to it
            self._report_end(agent, "it has left its Spark task", lives=True)
            return
        if why == _executor.LOST:
            why = self._reason(agent) or why
        died = _executor.KILLED in why  # the executor was alive, since it has reported this
        self._report_end(agent, "" if why == _executor.BUSY else why[:WHY_MAX], died=died)
        if self._is_stopped():
            self._disconnect()

    def _job(self, order: dict[str, Any]) -> str:
        archive = self._archive
        self._context.setJobGroup(self._group(order["start"]), f"hopyard: run {self._run}, {order['name']}", True)
        # The archive is a broadcast variable: as data of the RDD it would be written to a file.
        task = self._context.parallelize([0], 1).withResources(self._whole_executor())
        [why] = task.mapPartitions(lambda _: _executor.run(order, *archive.value)).collect()
        return why

    def _reason(self, agent: int) -> str | None:
        """The reason of an agent's end in Spark's status store, if the job's error does not have it."""
        try:
            return next(filter(None, (_lost(*f) or _unfit(*f) for f in self._failures(agent))), None)
        except Exception:  # Spark may be stopping; then only the job's error is known
            return None

    def _failures(self, agent: int) -> Iterator[tuple[str, str]]:
        """The failed tasks of its last job: the executor, and Spark's message."""
        spark, tracker = self._context._jsc.sc(), self._context.statusTracker()
        spark.listenerBus().waitUntilEmpty(LISTEN_MS)
        job = tracker.getJobInfo(max(tracker.getJobIdsForGroup(self._group(agent))))
        for stage in job.stageIds if job else ():
            tasks = spark.statusStore().taskList(stage, 0, 10)
            for task in (tasks.apply(i) for i in range(tasks.size())):
                if task.errorMessage().isDefined():
                    yield f"executor {task.executorId()} on {task.host()}", task.errorMessage().get()

    def _report_end(self, agent: int, why: str, lives: bool = False, died: bool = False) -> None:
        if self._driver:
            self._driver.agent_ended(agent, why, lives, died)

    def _disconnect(self) -> None:
        if self._driver:
            self._driver.close()


# ---- Spark's messages ---------------------------------------------------------------------------


def error_text(error: Exception) -> str:
    """The relevant line of an error that came through py4j."""
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage() if java is not None else error).strip()
    text = text.rpartition("Job aborted due to stage failure: ")[2]
    text = re.sub(r"^\[\w+\] | SQLSTATE: \w+$", "", text)  # "[SPARK_JOB_CANCELLED] Job 3 cancelled … SQLSTATE: XXKDA"
    return f"Spark: {_first_line(text)}" if text else f"Spark: {type(error).__name__}"


def _lost(where: str, why: str) -> str | None:
    """The loss of an executor, in Spark's or YARN's words: "Container killed by YARN for …"."""
    reason = _first_line(why.partition("Reason: ")[2] or why)
    return f"{where} was lost: {reason}" if "ExecutorLostFailure" in why else None


def _unfit(where: str, why: str) -> str | None:
    """A Python that Spark rejects before our task begins, or that cannot load Spark's modules."""
    ours = "{}.{}".format(*sys.version_info)
    remedy = f"; set PYSPARK_PYTHON to a Python {ours} that executors have, or ship an environment with the job"
    if version := re.search(r"PYTHON_VERSION_MISMATCH\]\D*([\d.]+)", why):
        return f"{where}: its Python is {version[1]}, but this session's is {ours}{remedy}"
    if said := re.search(r"Error from python worker:\n(?:.*\n)*? +(\S.*)\nPYTHONPATH was:", why):
        return f"{where}: its Python cannot start Spark's worker: {said[1][:400]}{remedy}"
    return None


def _join(threads: list[threading.Thread], timeout: float) -> None:
    """Joins all threads, within the timeout in total."""
    end = time.monotonic() + timeout
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))


def _first_line(text: str) -> str:
    return text.splitlines()[0][:400]


def _silence(context: Any) -> None:
    """Stops Spark's progress bar, which would overwrite the run's table."""
    bar = context._jsc.sc().progressBar()
    if bar.isDefined():
        bar.get().stop()
