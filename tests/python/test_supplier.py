# SPDX-License-Identifier: Apache-2.0
"""Agents on executors, without Spark: jobs for the orders of a driver, and what the driver learns about their end.

Real sessions: tests/e2e/test_spark.py, test_executors.py.
"""
from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import hopyard
from feeding import LIMIT_S, wait_for
from hopyard._spark import __main__ as _main
from hopyard._spark import executor as _executor
from hopyard._spark import package_archive as _package_archive
from hopyard._spark import session as _session
from hopyard._spark import supplier as _supplier

RUN = 7


class Scala(list[Any]):
    """A sequence of the JVM."""

    def size(self) -> int:
        return len(self)

    def apply(self, i: int) -> Any:
        return self[i]


def option(value: Any) -> Any:
    """An Option of the JVM."""
    return SimpleNamespace(isDefined=lambda: value is not None, get=lambda: value)


class Job:
    """An RDD of one partition: `task` is called in its place."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._function: Any = None

    def withResources(self, profile: Any) -> Job:  # noqa: N802
        self._context.profiles.append(profile)
        return self

    def map(self, function: Callable[[Any], Any]) -> Job:
        self._function = lambda rows: map(function, rows)
        return self

    def mapPartitions(self, function: Callable[[Any], Any]) -> Job:  # noqa: N802
        self._function = function
        return self

    def collect(self) -> list[Any]:
        return list(self._function(iter([0])))


class Context:
    """As much of a SparkContext as a supplier uses."""

    applicationId = "app-1"  # noqa: N815

    def __init__(self, master: str = "spark://a:7077", **conf: str) -> None:
        self.master = master
        self.conf = {"spark.driver.host": "127.0.0.1", **{f"spark.{k}": v for k, v in conf.items()}}
        self.executors: Scala = Scala()
        self.lists = 0  # of executors that were read
        self.failures: Scala = Scala()  # of tasks
        self.is_stopped = False
        self.profiles: list[Any] = []
        self.groups: queue.Queue[str] = queue.Queue()
        self.cancelled: list[str] = []
        self.destroyed = threading.Event()
        self.bar = option(None)
        self._jsc = SimpleNamespace(sc=lambda: self)

    def getConf(self) -> dict[str, str]:  # noqa: N802
        return self.conf

    def broadcast(self, value: Any) -> Any:
        return SimpleNamespace(value=value, destroy=self.destroyed.set)

    def parallelize(self, rows: list[Any], partitions: int) -> Job:
        assert (rows, partitions) == ([0], 1)
        return Job(self)

    def setJobGroup(self, group: str, description: str, interrupts: bool) -> None:  # noqa: N802
        assert interrupts and description.startswith(f"hopyard: run {RUN}, ")
        self.groups.put(group)

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802
        self.cancelled.append(group)

    # What the JVM has

    def isStopped(self) -> bool:  # noqa: N802
        return self.is_stopped

    def statusStore(self) -> Context:  # noqa: N802
        return self

    def executorList(self, is_active: bool) -> Scala:  # noqa: N802
        self.lists += 1
        return self.executors

    def taskList(self, stage: int, attempt: int, most: int) -> Scala:  # noqa: N802
        return self.failures

    def statusTracker(self) -> Any:  # noqa: N802
        job = SimpleNamespace(stageIds=[0])
        return SimpleNamespace(getJobIdsForGroup=lambda _: [0], getJobInfo=lambda _: job)

    def listenerBus(self) -> Any:  # noqa: N802
        return SimpleNamespace(waitUntilEmpty=lambda ms: None)

    def progressBar(self) -> Any:  # noqa: N802
        return self.bar

    def add_executor(self, name: str, cores: int = 2) -> None:
        self.executors.append(SimpleNamespace(id=lambda: name, totalCores=lambda: cores))

    def add_failure(self, message: str | None) -> None:
        found = {"executorId": "3", "host": "node-3", "errorMessage": option(message)}
        self.failures.append(SimpleNamespace(**{k: lambda v=v: v for k, v in found.items()}))


class Driver:
    """A driver's side of the connection: it sends orders, and notes what it receives."""

    def __init__(self) -> None:
        self._orders: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.ended: queue.Queue[tuple[Any, ...]] = queue.Queue()
        self.offers: list[tuple[Any, ...]] = []
        self.is_closed = threading.Event()

    def order(self, **words: Any) -> None:
        self._orders.put(words)

    def end(self) -> None:
        self._orders.put(None)

    def next(self) -> dict[str, Any] | None:
        return self._orders.get()

    def supply(self, what: str, count: int, parallel: int = 0, note: str = "", more: bool = False) -> None:
        self.offers.append((what, count, parallel, note, more))

    def agent_ended(self, agent: int, why: str, lives: bool = False, died: bool = False) -> None:
        self.ended.put((agent, why, lives, died))

    def close(self) -> None:
        self.is_closed.set()


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """Of run 7. Waits are short, and the archive is empty."""
    for name in ("BUSY_S", "POLL_S", "STEADY_S", "LOSS_NOTICE_S", "AGENT_EXIT_S"):
        monkeypatch.setattr(_supplier, name, 0.02)
    monkeypatch.setattr(_package_archive, "archive", lambda: (b"archive", "digest"))
    driver = Driver()
    monkeypatch.setattr(_supplier._driver, "connect", lambda run, project: driver)
    monkeypatch.setattr(_supplier, "_suppliers", {})
    yield driver
    driver.end()
    wait_for(lambda: not [t for t in threading.enumerate() if t.name.startswith(f"hopyard-run-{RUN}")])


@pytest.fixture
def supplied(driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Context]:
    """A session that supplies the run. Its tasks return these outcomes, or call them."""

    def start(*outcomes: str | Callable[[], str], context: Context | None = None, leaves: bool = False) -> Context:
        context, left = context or Context(**{"executor.cores": "2"}), iter(outcomes)

        def run(order: dict[str, Any], archive: bytes, digest: str) -> Iterator[str]:
            assert (archive, digest) == (b"archive", "digest") and order["leaves"] is leaves
            outcome = next(left)
            yield outcome if isinstance(outcome, str) else outcome()

        monkeypatch.setattr(_executor, "run", run)
        _supplier.supply(SimpleNamespace(sparkContext=context), RUN, tmp_path, leaves)
        return context

    return start


def raising(text: str) -> Callable[[], str]:
    def fail() -> str:
        raise RuntimeError(text)

    return fail


# ---- agents ----------------------------------------------------------------------------------------


def test_order_becomes_a_job_whose_end_is_reported(driver: Driver, supplied: Callable[..., Context]) -> None:
    context = supplied("executor 1 on a: agent ended with status 0")
    driver.order(start=3, name="agent 3")
    assert driver.ended.get(timeout=LIMIT_S) == (3, "executor 1 on a: agent ended with status 0", False, False)
    assert context.groups.get_nowait() == "hopyard-run-7-agent-3"


def test_busy_executor_is_tried_again(driver: Driver, supplied: Callable[..., Context]) -> None:
    context = supplied(_executor.BUSY, _executor.BUSY, "done")
    driver.order(start=1, name="agent 1")
    assert driver.ended.get(timeout=LIMIT_S)[:2] == (1, "done") and context.groups.qsize() == 3


def test_agent_that_has_left_its_task_is_alive(driver: Driver, supplied: Callable[..., Context]) -> None:
    supplied(_executor.LEFT, leaves=True)
    driver.order(start=1, name="agent 1")
    assert driver.ended.get(timeout=LIMIT_S) == (1, "it has left its Spark task", True, False)


def test_agent_killed_by_a_signal_has_died(driver: Driver, supplied: Callable[..., Context]) -> None:
    supplied(f"executor 1 on a: {_executor.KILLED} 9")
    driver.order(start=1, name="agent 1")
    assert driver.ended.get(timeout=LIMIT_S) == (1, f"executor 1 on a: {_executor.KILLED} 9", False, True)


@pytest.mark.parametrize(
    ("outcome", "failure", "why"),
    [
        (
            _executor.LOST,
            "ExecutorLostFailure (executor 3 exited) Reason: Container killed by YARN for exceeding its limits.\nmore",
            "executor 3 on node-3 was lost: Container killed by YARN for exceeding its limits.",
        ),
        (_executor.LOST, None, _executor.LOST),
        (
            raising("Job aborted due to stage failure: PySparkRuntimeError"),
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11",
            "executor 3 on node-3: its Python is 3.9, but this session's is 3",
        ),
        (
            raising("Job aborted due to stage failure"),
            "Error from python worker:\n  Traceback\n  ModuleNotFoundError: No module named 'x'\nPYTHONPATH was:\n /a",
            "executor 3 on node-3: its Python cannot start Spark's worker: ModuleNotFoundError: No module named 'x'; ",
        ),
        (
            raising("Py4J: Job aborted due to stage failure: [SPARK_JOB_CANCELLED] Job 3 cancelled SQLSTATE: XXKDA"),
            "ordinary failure",
            "Spark: Job 3 cancelled",
        ),
        (raising(""), None, "Spark: RuntimeError"),
    ],
)
def test_reason_of_a_failed_job_is_what_spark_knows(
    driver: Driver, supplied: Callable[..., Context], outcome: Any, failure: str | None, why: str
) -> None:
    context = Context(**{"executor.cores": "2"})
    context.add_failure(failure)
    supplied(outcome, context=context)
    driver.order(start=1, name="agent 1")
    agent, said, lives, died = driver.ended.get(timeout=LIMIT_S)
    assert agent == 1 and said.startswith(why) and not lives and not died


def test_exception_of_the_jvm_is_reported_by_its_message(driver: Driver, supplied: Callable[..., Context]) -> None:
    def fail() -> str:
        error = RuntimeError("An error occurred while calling o55.collect")
        error.java_exception = SimpleNamespace(getMessage=lambda: "no such host\n\tat java.net")  # type: ignore
        raise error

    supplied(fail)
    driver.order(start=1, name="agent 1")
    assert driver.ended.get(timeout=LIMIT_S)[1] == "Spark: no such host"


def test_agent_that_is_not_needed_is_cancelled_without_a_reason(
    driver: Driver, supplied: Callable[..., Context]
) -> None:
    context = Context(**{"executor.cores": "2"})

    def until_cancelled() -> str:
        wait_for(lambda: bool(context.cancelled))
        raise RuntimeError("Job 0 cancelled")

    supplied(until_cancelled, context=context)
    driver.order(start=1, name="agent 1")
    context.groups.get(timeout=LIMIT_S)
    driver.order(stop=1)
    assert driver.ended.get(timeout=LIMIT_S) == (1, "", False, False)
    assert context.cancelled == ["hopyard-run-7-agent-1"]


def test_agents_of_a_driver_that_is_gone_are_cancelled(
    driver: Driver, supplied: Callable[..., Context], tmp_path: Path
) -> None:
    context = Context(**{"executor.cores": "2"})

    def until_cancelled() -> str:
        wait_for(lambda: bool(context.cancelled))
        return "cancelled"

    supplied(until_cancelled, context=context)
    driver.order(start=1, name="agent 1")
    context.groups.get(timeout=LIMIT_S)
    assert not _supplier._suppliers[RUN, str(tmp_path)].join(LIMIT_S), "the run has not ended"
    driver.end()
    assert context.destroyed.wait(LIMIT_S) and driver.is_closed.is_set()
    assert context.cancelled == ["hopyard-run-7-agent-1"]
    assert _supplier.settle(RUN, tmp_path) and not _supplier.settle(RUN, tmp_path), "the run is forgotten"


def test_job_groups_of_runs_with_the_same_number_differ(
    driver: Driver, supplied: Callable[..., Context], tmp_path: Path
) -> None:
    """Runs are numbered per project."""
    _supplier._suppliers[RUN, "/another/project"] = None  # type: ignore[assignment]
    context = supplied("done")
    driver.order(start=1, name="agent 1")
    assert context.groups.get(timeout=LIMIT_S) == f"hopyard-run-7-agent-1-of-{tmp_path.name}"


@pytest.mark.parametrize(
    ("conf", "listed", "cores", "gpus"),
    [
        ({"executor.cores": "4", "executor.resource.gpu.amount": "2"}, [8], 4, 2),
        ({"executor.resource.gpu.amount": "0"}, [8, 6], 6, None),
        ({}, [], 1, None),
    ],
)
def test_an_agent_occupies_its_whole_executor(
    driver: Driver, supplied: Callable[..., Context], conf: dict[str, str], listed: list[int], cores: int,
    gpus: int | None,
) -> None:  # fmt: skip
    """Without a setting and an executor, a job asks the first one: this process has no --cores, and so one core."""
    context = Context(**conf)
    for n, count in enumerate(listed):
        context.add_executor(str(n), count)
    context.add_executor("driver", 1)
    supplied("done", "done", context=context)
    for agent in (1, 2):
        driver.order(start=agent, name="agent")
        driver.ended.get(timeout=LIMIT_S)
    first, second = context.profiles
    amounts = {name: request.amount for name, request in first.taskResources.items()}
    assert amounts == {"cpus": cores, **({"gpu": gpus} if gpus else {})}
    assert first is second, "Spark keeps each profile for the application's life"


# ---- the offer -------------------------------------------------------------------------------------


def test_fixed_number_of_executors_is_offered_at_once(driver: Driver, supplied: Callable[..., Context]) -> None:
    supplied(context=Context(**{"executor.cores": "2", "hopyard.executors": "3", "hopyard.parallel": "5"}))
    wait_for(lambda: bool(driver.offers))
    assert driver.offers == [("Spark app-1", 3, 5, "", False)]


def test_executors_are_offered_as_they_join(driver: Driver, supplied: Callable[..., Context]) -> None:
    context = Context(**{"executor.cores": "2"})
    supplied(context=context)
    for count in (1, 2):
        context.add_executor(str(count))
        wait_for(lambda: bool(driver.offers) and driver.offers[-1][1] == count)
    wait_for(lambda: driver.offers[-1] == ("Spark app-1", 2, 0, "", False))
    assert ("Spark app-1", 1, 0, "", True) in driver.offers, "more may join"
    context.executors.clear()
    seen = context.lists
    wait_for(lambda: context.lists > seen + 1)
    assert driver.offers[-1][1] == 2, "a lost executor is replaced"


def test_unreadable_list_of_executors_is_an_empty_one(driver: Driver, supplied: Callable[..., Context]) -> None:
    context = Context(**{"executor.cores": "2"})
    asked = threading.Event()

    def fail(is_active: bool) -> Scala:
        asked.set()
        raise RuntimeError("SparkContext is stopping")

    context.executorList = fail  # type: ignore[method-assign]
    supplied(context=context)
    assert asked.wait(LIMIT_S) and driver.offers == []


def test_stopped_session_disconnects_from_its_driver(driver: Driver, supplied: Callable[..., Context]) -> None:
    context = supplied()
    context.is_stopped = True
    assert driver.is_closed.wait(LIMIT_S)


def test_job_that_fails_because_the_session_stops_disconnects(
    driver: Driver, supplied: Callable[..., Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JVM that is gone does not answer any more."""
    monkeypatch.setattr(_supplier, "POLL_S", LIMIT_S)
    context = Context(**{"executor.cores": "2"})

    def stop() -> str:
        context._jsc = None  # type: ignore[assignment]
        raise RuntimeError("SparkContext was shut down")

    supplied(stop, context=context)
    driver.order(start=1, name="agent 1")
    assert driver.ended.get(timeout=LIMIT_S)[1] == "Spark: SparkContext was shut down"
    assert driver.is_closed.wait(LIMIT_S)


@pytest.fixture
def unhandled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What has ended a thread."""
    errors: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: errors.append(str(args.exc_value)))
    return errors


def failing(text: str) -> Callable[..., Any]:
    def fail(*args: Any) -> Any:
        raise RuntimeError(text)

    return fail


def test_jvm_that_does_not_answer_counts_as_stopped(driver: Driver, supplied: Callable[..., Context]) -> None:
    context = Context(**{"executor.cores": "2"})
    context._jsc = SimpleNamespace(sc=failing("Answer from Java side is empty"))
    supplied(context=context)
    assert driver.is_closed.wait(LIMIT_S) and driver.offers == []


@pytest.mark.parametrize(("is_stopped", "errors"), [(True, []), (False, ["connection reset"])])
def test_only_errors_of_a_stopped_session_are_expected(
    driver: Driver, supplied: Callable[..., Context], monkeypatch: pytest.MonkeyPatch, unhandled: list[str],
    is_stopped: bool, errors: list[str],
) -> None:  # fmt: skip
    """The driver is disconnected in any case."""
    context = Context(**{"executor.cores": "2"})
    context.is_stopped = is_stopped
    monkeypatch.setattr(driver, "next", failing("connection reset"))
    supplied(context=context)
    wait_for(lambda: not [t for t in threading.enumerate() if t.name.endswith("_serve")])
    assert unhandled == errors and driver.is_closed.is_set()
    assert context.destroyed.is_set() is not is_stopped, "of a stopped session, the archive is gone already"


@pytest.mark.parametrize(("is_stopped", "errors"), [(True, []), (False, ["no such group"])])
def test_a_stopped_session_has_no_jobs_to_cancel(
    driver: Driver, supplied: Callable[..., Context], monkeypatch: pytest.MonkeyPatch, unhandled: list[str],
    is_stopped: bool, errors: list[str],
) -> None:  # fmt: skip
    context, cancelled = Context(**{"executor.cores": "2"}), threading.Event()

    def cancel(group: str) -> None:
        context.is_stopped = is_stopped
        cancelled.set()
        raise RuntimeError("no such group")

    monkeypatch.setattr(context, "cancelJobGroup", cancel)
    supplied(context=context)
    driver.order(stop=1)
    assert cancelled.wait(LIMIT_S)
    wait_for(lambda: not [t for t in threading.enumerate() if t.name.endswith("(_cancel)")])
    assert unhandled == errors


def test_jobs_of_a_run_that_ends_are_cancelled_once(
    driver: Driver, supplied: Callable[..., Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that are about to be cancelled, once Spark has had the time to notice a loss."""
    monkeypatch.setattr(_supplier, "LOSS_NOTICE_S", LIMIT_S)
    context = Context(**{"executor.cores": "2"})

    def until_cancelled() -> str:
        wait_for(lambda: bool(context.cancelled))
        return "cancelled"

    supplied(until_cancelled, context=context)
    driver.order(start=1, name="agent 1")
    context.groups.get(timeout=LIMIT_S)
    driver.order(stop=1)
    driver.end()
    assert context.destroyed.wait(LIMIT_S)
    wait_for(lambda: not [t for t in threading.enumerate() if t.name.endswith("(_cancel)")])
    assert context.cancelled == ["hopyard-run-7-agent-1"]


def test_progress_bar_does_not_overwrite_the_table_of_a_terminal(
    driver: Driver, supplied: Callable[..., Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = threading.Event()
    context = Context(**{"executor.cores": "2"})
    context.bar = option(SimpleNamespace(stop=stopped.set))
    monkeypatch.setattr(_supplier.sys, "stderr", SimpleNamespace(isatty=lambda: True, write=len, flush=list))
    supplied(context=context)
    assert stopped.is_set()


# ---- before a run ------------------------------------------------------------------------------------


def test_address_is_that_of_the_sessions_driver(tmp_path: Path) -> None:
    assert _supplier.address(Context("local[2]"), tmp_path) == ""
    assert _supplier.address(Context(), tmp_path) == "127.0.0.1"
    with pytest.raises(hopyard.Error, match="spark.hopyard.executors is 'many', which is not a number"):
        _supplier.address(Context(**{"hopyard.executors": "many"}), tmp_path)


def test_parallel_trials_of_a_local_session_are_its_setting(tmp_path: Path) -> None:
    assert _supplier.parallel(Context("local[2]", **{"hopyard.parallel": "3"}), tmp_path) == 3
    assert _supplier.parallel(Context(**{"hopyard.parallel": "3"}), tmp_path) is None


def test_open_channel_to_remote_executors_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_session, "address", lambda context: "192.0.2.1")
    assert "set spark.authenticate and spark.network.crypto.enabled" in _session.exposed(Context())
    assert "the agents' keys can be read" in _session.exposed(Context(authenticate="true"))
    assert _session.exposed(Context(authenticate="true", **{"network.crypto.enabled": "true"})) == ""
    assert _session.exposed(Context(**{"ssl.rpc.enabled": "true"})) == ""
    monkeypatch.setattr(_session, "address", lambda context: "127.0.0.1")
    assert _session.exposed(Context()) == "", "nothing leaves this machine"


# ---- a session for one run ---------------------------------------------------------------------------


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What spark.session is called with; the session is a stand-in."""
    calls: list[tuple[Any, ...]] = []

    def session(*args: Any) -> Any:
        calls.append(args)
        if args[0] == "spark://gone:7077":
            raise RuntimeError("All masters are unresponsive! Giving up.\nmore")
        return SimpleNamespace(sparkContext=Context(**{"executor.cores": "2"}), stop=lambda: calls.append(("stop",)))

    monkeypatch.setattr(_main.spark, "session", session)
    monkeypatch.setattr(_session, "default", lambda name: None)
    return calls


def test_session_of_a_run_lives_as_long_as_the_run(
    driver: Driver, requested: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    driver.end()
    assert _main.main(str(RUN), str(tmp_path), "spark://a:7077", "192.0.2.1", "3", "0", "1") == 0
    (master, executors, parallel, memory, gpus, servers, project, conf), stopped = requested
    assert (master, executors, memory, gpus) == ("spark://a:7077", 3, None, 1), "0: not specified"
    assert parallel is None and servers is None and project == str(tmp_path) and stopped == ("stop",)
    assert conf["spark.driver.host"] == "192.0.2.1" and conf["spark.app.name"] == f"hopyard run {RUN}"


def test_driver_host_of_spark_defaults_is_kept(
    driver: Driver, requested: list[tuple[Any, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_session, "default", {"spark.driver.host": "192.0.2.9"}.get)
    driver.end()
    assert _main.main(str(RUN), str(tmp_path), "spark://a:7077", "192.0.2.1", "0", "0", "0") == 0
    assert "spark.driver.host" not in requested[0][-1]


def test_run_ends_with_the_reason_if_no_session_can_be_created(
    driver: Driver, requested: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    assert _main.main(str(RUN), str(tmp_path), "spark://gone:7077", "192.0.2.1", "0", "0", "0") == 1
    assert driver.offers == [("Spark", 0, 0, "", False)]
    assert driver.ended.get_nowait()[:2] == (
        0, "cannot create a Spark session at 'spark://gone:7077': Spark: All masters are unresponsive! Giving up."
    )  # fmt: skip
