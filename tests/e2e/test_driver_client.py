# SPDX-License-Identifier: Apache-2.0
"""`_hopyard.Driver`: Python's connection to the driver of a run."""
from __future__ import annotations

import json
import socket
import struct
import threading
import time
from pathlib import Path

import hopyard
import hopyard._run.driver
import pytest
from conftest import Yard
from hopyard import _hopyard
from namenode import message
from test_experiment import Lab, lab  # noqa: F401  (a fixture)


def connect(yard: Yard) -> _hopyard.Driver:
    return _hopyard.Driver(json.loads(yard.run("show", "--json").stdout)["run"]["socket"])


def last_update(driver: _hopyard.Driver) -> dict:
    while "last" not in (event := driver.next(60) or {}).get("update", {}) or not event["update"]["last"]:
        assert event, "the connection ended without a last update"
    return event["update"]


def test_updates_are_events_and_the_last_one_has_state_and_counts(yard: Yard) -> None:
    yard.run("run", "--detach", "--grid", "x=1..3", "--", "sleep", "0.3")
    driver = connect(yard)
    assert driver.watch()
    update = last_update(driver)
    assert (update["state"], update["done"], update["failed"], update["total"]) == ("done", 3, 0, 3)
    assert driver.next(60) is None, "the driver has exited"
    yard.wait_idle()
    assert driver.stop() is False, "nothing is left to stop"
    assert "socket" not in json.loads(yard.run("show", "--json").stdout)["run"]


def test_the_last_update_has_the_best_trial_and_the_notes(yard: Yard) -> None:
    started = yard.submit([("grid", "x=1..3"), ("max", "v"), ("name", "n"), ("parallel", 1)], ["sh", "-c", "sleep 0.3; echo v={x}"])
    driver = _hopyard.Driver(str(started["socket"]))
    driver.watch()
    update = last_update(driver)
    best = update["best"]
    assert (update["name"], update["metric"], update["maximize"], update["notes"]) == ("n", "v", True, [])
    assert (best["number"], best["value"], json.loads(best["params"]), best["dir"]) == (3, 3.0, {"x": 3}, "x=3")


def test_a_search_starts_one_program_besides_the_display(yard: Yard, lab: Lab) -> None:  # noqa: F811
    """Trials are read from the store when they are used, in pages."""
    calls = yard.runtime / "calls"
    program = yard.script("program", f'echo "$1" >>{calls}\nexec {yard.bin} "$@"\n')
    lab.env["HOPYARD_PROGRAM"] = str(program)
    del lab.env["HOPYARD_PROJECT"]
    output = lab.evaluate(f"""
        from hopyard._run import result
        result.PAGE = 2
        calls = lambda: open({str(calls)!r}).read().split()
        def training(x):
            return {{"metric": x, "twice": 2 * x}}
        found = experiment.grid_search(training, {{"x": [1, 2, 3, 4, 5]}}, tensorboard=False)
        states, first = (found.state, found.count("done")), calls()
        os.chdir("/")  # the result knows its project
        best, second = (found.best.params, found.best.metrics), calls()[len(first):]
        trials, third = [t.metric for t in found.trials], calls()[len(first) + len(second):]
        emit(states=states, first=first, best=best, second=second, trials=trials, third=third, notes=found.notes)
    """)
    assert output["states"] == ["done", 5] and output["best"] == [{"x": 5}, {"metric": 5, "twice": 10}]
    assert (output["first"], output["second"], output["third"]) == (["driver", "attach"], ["show"], ["show"] * 3)
    assert output["trials"] == [1, 2, 3, 4, 5] and "is used as the metric" not in str(output["notes"])


def test_a_run_that_ends_before_it_is_connected_to_has_its_result(yard: Yard, lab: Lab) -> None:  # noqa: F811
    output = lab.evaluate("""
        from hopyard import _hopyard
        started = _hopyard.Driver.submit(os.environ["HOPYARD_PROGRAM"], "run", [("name", "short")], argv=["true"])
        while experiment.result(started.run).is_running:
            time.sleep(0.02)
        emit(run=started.run, result=experiment.attach(started.run).state, stopped=started.stop())
    """)
    assert output == {"run": 1, "result": "done", "stopped": output["stopped"]}


def test_client_may_request_the_last_update_only(yard: Yard) -> None:
    gate = yard.project / "gate"
    yard.script("wait", f"while ! [ -e {gate} ]; do sleep 0.02; done\n")
    started = yard.submit([("grid", "x=1..2"), ("parallel", 1)], ["./wait"])
    silent, other = (_hopyard.Driver(str(started["socket"])) for _ in range(2))
    silent.watch(only_last=True)
    other.watch()
    assert not (other.next(60) or {})["update"]["last"]
    gate.touch()
    assert last_update(other)["done"] == 2
    first = silent.next(60) or {}
    assert first["update"]["last"] and first["update"]["done"] == 2
    assert silent.next(60) is None


def test_connection_that_ends_in_the_middle_of_a_message_has_ended(tmp_path: Path) -> None:
    """The driver may leave, or die, before a slow client has read its last update."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        driver = _hopyard.Driver(str(tmp_path / "s"))
        peer, _ = listener.accept()
        peer.sendall(b"\x09\x00\x00\x00\x01\x06")  # the beginning of a message of nine bytes
        peer.close()
        assert driver.next(60) is None


def test_refused_client_reads_the_result_from_the_store(tmp_path: Path) -> None:
    """A driver with too many clients answers with an error; the run continues."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        driver = _hopyard.Driver(str(tmp_path / "s"))
        peer, _ = listener.accept()
        body = message((2, "run 1 has the maximum of 1000 clients"))
        frame = struct.pack("<IBBHI", len(body), 1, 6, 0, 0) + body
        peer.sendall(frame)
        assert hopyard._run.driver.last_update(driver) is None
        peer.sendall(frame)
        with pytest.raises(hopyard.Error, match="the maximum of 1000 clients"):
            driver.next(60)
        peer.close()


def test_stop_of_a_run(yard: Yard) -> None:
    yard.run("run", "--detach", "--", "sleep", "1000")
    driver = connect(yard)
    driver.watch()
    assert driver.stop()
    assert last_update(driver)["state"] == "stopped"
    yard.wait_idle()


def test_waiting_times_out_and_ends_on_close(yard: Yard) -> None:
    yard.run("run", "--detach", "--", "sleep", "1000")
    driver = connect(yard)
    with pytest.raises(TimeoutError):
        driver.next(0.05)
    found: list[object] = []
    waiting = threading.Thread(target=lambda: found.append(driver.next()))
    waiting.start()
    deadline = time.monotonic() + 20
    while not found:  # only one thread may wait at a time
        try:
            driver.next(0)
        except TimeoutError:
            assert time.monotonic() < deadline
        except hopyard.Error as error:
            assert "another thread waits" in str(error)
            break
    driver.close()
    waiting.join(20)
    assert found == [None]
    assert driver.watch() is False and driver.next(0) is None
    yard.run("stop")
    yard.wait_idle()


def test_missing_driver_is_an_error(yard: Yard) -> None:
    with pytest.raises(hopyard.Error, match="cannot connect to"):
        _hopyard.Driver(str(yard.project / "none"))


def test_waiting_for_a_cluster_starts_no_process(lab: Lab) -> None:  # noqa: F811
    output = lab.evaluate("""
        import time
        from hopyard import cluster
        from hopyard._run import program

        def main_fun(args, ctx):
            time.sleep(1)

        nodes = cluster.run(main_fun, workers=2, tensorboard=False)
        program.call = program.command = None   # the functions that start the program
        nodes.wait_for_nodes(120)
        running = nodes.is_running()
        import importlib
        importlib.reload(program)
        nodes.shutdown()
        emit(running=running)
    """)
    assert output == {"running": True}
