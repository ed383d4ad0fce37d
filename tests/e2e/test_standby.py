# SPDX-License-Identifier: Apache-2.0
"""Between two calls of one client its agent stays on standby, with the process that forks trials."""
from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Yard, wait_for
from house import PLAIN, Notebook

CELL = """
def training(x):
    import os
    print(os.getppid(), os.environ.get("COLOUR"), os.environ.get("SIZE"), word)
    return x

def run(fn=training, **options):
    result = experiment.grid_search(fn, {"x": [1, 2]}, tensorboard=False, **options)
    return [Path(t.logdir, "stdout").read_text().split() for t in result.trials]

word = "first"
"""


@pytest.fixture
def kernel(yard: Yard) -> Iterator[Notebook]:
    notebook = Notebook(yard, {}, head=PLAIN)
    notebook.evaluate(CELL)
    yield notebook
    notebook.close()
    wait_for(lambda: not yard.processes("hopyard agent|_trial --serve"), "all processes have exited")
    assert not sockets(yard)


def agent_of(kernel: Notebook, code: str = "emit(printed=run())") -> int:
    """Runs two trials; returns the agent that was their parent."""
    printed = kernel.evaluate(code)["printed"]
    assert printed[0][0] == printed[1][0]
    return int(printed[0][0])


def sockets(yard: Yard) -> list[Path]:
    return list(yard.runtime.glob("hopyard/standby-*"))


def is_on_standby(yard: Yard, agent: int) -> bool:
    return any(path.name.endswith(f"-{agent}.sock") for path in sockets(yard))


def server(yard: Yard) -> int:
    (pid,) = yard.processes("_trial --serve")
    return pid


def files_of(pid: int) -> list[str]:
    return [os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()]


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_next_run_uses_the_same_agent_with_its_own_function_and_environment(yard: Yard, kernel: Notebook) -> None:
    output = kernel.evaluate("""
        os.environ["COLOUR"], os.environ["SIZE"] = "red", "7"
        first = run()
        os.environ["COLOUR"] = "blue"
        del os.environ["SIZE"]
        word = "second"
        emit(first=first, second=run(), third=experiment.grid_search(lambda x: x * 10, {"x": [3]}, tensorboard=False).best.metric)
    """)
    agent = output["first"][0][0]
    assert output["first"] == [[agent, "red", "7", "first"]] * 2
    assert output["second"] == [[agent, "blue", "None", "second"]] * 2
    assert output["third"] == 30
    before = server(yard)
    assert agent_of(kernel) == int(agent) and server(yard) == before


def test_standby_agent_holds_no_resources_of_a_run(yard: Yard, kernel: Notebook) -> None:
    agent = agent_of(kernel)
    wait_for(lambda: is_on_standby(yard, agent), "the agent is on standby")
    wait_for(lambda: not yard.processes("hopyard driver"), "the driver has exited")
    for pid in (agent, parent_of(agent)):
        wait_for(lambda: not [f for f in files_of(pid) if f.startswith(str(yard.project))], "it closes the files of the run")
    assert "in use, by" not in yard.run("run", "--parallel", os.cpu_count() or 1, "--", "true").stdout


@pytest.mark.parametrize("change", ["os.environ['TF_CPP_MIN_LOG_LEVEL'] = '1'", "sys.path.append('/tmp/more')",
                                    "import scipy.special; training.__globals__['used'] = scipy.special; exec(\"def training(x):\\n    import os; used; "
                                    "print(os.getppid()); return x\")", "os.umask(0o27)"])
def test_standby_agent_is_reused_only_with_the_same_configuration(yard: Yard, kernel: Notebook, change: str) -> None:
    first = agent_of(kernel)
    second = agent_of(kernel, f"{change}\nemit(printed=run(training))")
    assert first != second
    wait_for(lambda: first not in yard.processes("hopyard agent"), "the first agent has exited")
    assert agent_of(kernel, "emit(printed=run(training))") == second


def test_standby_agent_exits_with_its_client(yard: Yard, kernel: Notebook) -> None:
    agent = agent_of(kernel)
    wait_for(lambda: is_on_standby(yard, agent), "the agent is on standby")
    kernel.kill()
    wait_for(lambda: not yard.processes("hopyard agent|_trial --serve"), "all processes have exited")
    assert not sockets(yard)


def test_standby_agent_exits_after_its_timeout(yard: Yard) -> None:
    notebook = Notebook(yard, {"HOPYARD_TEST_STANDBY_MS": "200"}, head=PLAIN)
    notebook.evaluate(CELL)
    agent = agent_of(notebook)
    wait_for(lambda: agent not in yard.processes("hopyard agent") and not yard.processes("_trial"), "the agent has exited by itself")
    assert agent_of(notebook) != agent, "a new agent is started"
    notebook.close()


def test_agent_with_too_much_memory_does_not_stay_on_standby(yard: Yard) -> None:
    notebook = Notebook(yard, {"HOPYARD_TEST_STANDBY_BYTES": "1000000"}, head=PLAIN)
    notebook.evaluate(CELL)
    agent_of(notebook)
    wait_for(lambda: not yard.processes("hopyard agent|_trial --serve"), "all processes have exited")
    assert not sockets(yard)
    notebook.close()


def test_gc_lists_standby_agents_and_stops_them_with_all(yard: Yard, kernel: Notebook) -> None:
    agent = agent_of(kernel)
    wait_for(lambda: is_on_standby(yard, agent), "the agent is on standby")
    output = yard.run("gc").stdout
    assert f"process {agent}, for process {kernel.process.pid}" in output and "nothing to clean up" in output
    assert is_on_standby(yard, agent), "without --all it is left alone"
    assert f"would stop an agent on standby for its client's next run: process {agent}" in yard.run("gc", "--all", "--dry-run").stdout
    assert f"stopped an agent on standby for its client's next run: process {agent}" in yard.run("gc", "--all").stdout
    wait_for(lambda: not yard.processes("hopyard agent|_trial"), "the agent has exited")


GATED = """
def gated(x):
    import os, time
    from pathlib import Path
    with Path(gate + ".pids").open("a") as file:
        print(os.getppid(), file=file)
    while not os.path.exists(gate):
        time.sleep(0.02)
    return x

gate = {gate!r}
emit(run=experiment.grid_search(gated, {{"x": [1, 2]}}, parallel=1, tensorboard=False, detach=True).run)
"""


def start_gated_run(yard: Yard, kernel: Notebook) -> tuple[Path, int]:
    """A run whose agent was on standby, and whose first trial runs; returns its gate, and the agent."""
    agent, gate = agent_of(kernel), yard.project / "gate"
    kernel.evaluate(GATED.format(gate=str(gate)))
    started = Path(f"{gate}.pids")
    wait_for(lambda: started.exists() and started.read_text() == f"{agent}\n", "the same agent runs the first trial")
    return gate, agent


def test_reused_agent_exits_with_a_killed_driver_and_nothing_is_lost(yard: Yard, kernel: Notebook) -> None:
    gate, agent = start_gated_run(yard, kernel)
    for pid in yard.processes("hopyard driver"):
        if parent_of(pid) in yard.processes("hopyard driver"):
            os.kill(pid, signal.SIGKILL)
    wait_for(lambda: agent not in yard.processes("hopyard agent") and not yard.processes("_trial"), "the agent exits with the driver")
    wait_for(lambda: yard.state(2) == "interrupted" or not yard.processes("hopyard driver"), "the driver is gone")
    gate.touch()
    yard.run("resume", "2")
    assert [t["state"] for t in yard.trials(2)] == ["done", "done"]


def test_killed_reused_agent_is_replaced(yard: Yard, kernel: Notebook) -> None:
    gate, agent = start_gated_run(yard, kernel)
    gate.touch()
    os.kill(agent, signal.SIGKILL)
    wait_for(lambda: yard.state(2) == "done", "the run continues with another agent")
    assert [t["state"] for t in yard.trials(2)] == ["done", "done"]


def test_concurrent_runs_have_an_agent_each(yard: Yard, kernel: Notebook) -> None:
    gate, agent = start_gated_run(yard, kernel)
    assert agent_of(kernel, "emit(printed=run(oversubscribe=True))") != agent
    gate.touch()
    wait_for(lambda: yard.state(2) == "done", "the first run ends")
