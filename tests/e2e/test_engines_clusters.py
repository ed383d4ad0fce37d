# SPDX-License-Identifier: Apache-2.0
"""Clusters of nodes with roles, on every engine."""
from __future__ import annotations

import json
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import tfcluster_programs as programs
from engines import Engine, by_itself, engine  # noqa: F401  (fixtures)

HEAD = """
from hopyard import cluster

def failing(call):
    try:
        call()
    except hopyard.Error as error:
        return [type(error).__name__, str(error)]
"""


def evaluate(engine: Engine, code: str) -> dict[str, Any]:  # noqa: F811
    return engine.evaluate(HEAD + textwrap.dedent(code))


def test_nodes_get_their_role_and_all_addresses(engine: Engine) -> None:  # noqa: F811
    """A parameter server that sleeps forever is stopped when the others are done."""
    output = evaluate(engine, """
        def main_fun(args, ctx):
            import sys, time
            print("this is", ctx.job_name, ctx.task_index)
            if ctx.job_name == "ps":
                time.sleep(3600)
            facts = [ctx.executor_id, ctx.worker_num, ctx.job_name, ctx.task_index, ctx.num_workers]
            return {"facts": facts, "spec": ctx.cluster_spec, "config": json.loads(os.environ["TF_CONFIG"]), "argv": sys.argv,
                    "args": args, "held": ctx.tmp_socket.getsockname()[1], "gpus": os.environ.get("CUDA_VISIBLE_DEVICES")}

        nodes = cluster.run(main_fun, ["--epochs", "3"], workers=1, ps=1, chief=True, evaluator=True, name="four",
                            release_port=False, tensorboard=False, **where)
        emit(returned=nodes.results(), text=repr(nodes), logdir=experiment.result("four").logdir)
    """)
    found = output["returned"]
    assert list(found) == ["chief-0", "evaluator-0", "worker-0"], "the server did not return"
    assert [found[name]["facts"] for name in found] == [
        [1, 1, "chief", 0, 2], [2, 2, "evaluator", 0, 2], [3, 3, "worker", 0, 2]]
    spec = found["chief-0"]["spec"]
    assert {job: len(nodes) for job, nodes in spec.items()} == {"ps": 1, "chief": 1, "evaluator": 1, "worker": 1}
    assert len({address for nodes in spec.values() for address in nodes}) == 4, "each has its own port"
    for name, node in found.items():
        job, index = name.split("-")
        assert node["spec"] == spec and node["config"]["task"] == {"type": job, "index": int(index)}
        assert node["config"]["cluster"] == {job: nodes for job, nodes in spec.items() if job != "evaluator"}
        assert spec[job][0].rpartition(":")[2] == str(node["held"]), "the port is held for TensorFlow"
        assert node["args"] == node["argv"] == ["--epochs", "3"]
    assert "1 ps, 1 chief, 1 evaluator, 1 worker" in output["text"]
    assert Path(output["logdir"], "node=ps-0", "stdout").read_text() == "this is ps 0\n"
    trials = json.loads(engine.yard.run("show", "four", "--json").stdout)["trials"]
    assert [t["state"] for t in trials] == ["done"] * 4 and not engine.running()


def test_failed_node_stops_the_cluster_with_a_reason(engine: Engine) -> None:  # noqa: F811
    output = evaluate(engine, """
        def main_fun(args, ctx):
            import time
            if ctx.job_name == "worker" and ctx.task_index == 1:
                raise ValueError("no such data")
            time.sleep(3600)

        nodes = cluster.run(main_fun, None, workers=2, ps=1, name="fails", tensorboard=False, **where)
        emit(error=failing(nodes.shutdown), again=failing(nodes.shutdown))
    """)
    kind, text = output["error"]
    assert kind == "TrialsFailed" and "worker 1 on " in text.splitlines()[0]
    assert 'in main_fun' in text and text.rstrip().endswith("ValueError: no such data")
    assert "cluster_node.py" not in text, "frames of hopyard are not shown"
    assert output["again"][0] == "TrialsFailed", "the error is raised again"
    trials = json.loads(engine.yard.run("show", "fails", "--json").stdout)["trials"]
    assert [t["state"] for t in trials] == ["stopped", "stopped", "failed"]


@pytest.mark.full
def test_killed_node_stops_the_cluster(engine: Engine) -> None:  # noqa: F811
    output = evaluate(engine, """
        def main_fun(args, ctx):
            import signal, time
            if ctx.job_name == "ps":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(3600)

        nodes = cluster.run(main_fun, None, workers=1, ps=1, tensorboard=False, **where)
        emit(error=failing(nodes.shutdown))
    """)
    kind, text = output["error"]
    assert kind == "TrialsFailed" and "ps 0 on " in text and "signal 9" in text


def test_tensorflow_strategy_trains_on_the_nodes(engine: Engine) -> None:  # noqa: F811
    """Across machines, if the engine has several, with addresses that are reachable from all. Each reads its part of the files."""
    text = Path(programs.__file__).read_text()
    output = evaluate(engine, f"""
        programs = {{}}
        exec({text!r}, programs)
        nodes = cluster.run(programs["mirrored_loop"], {programs.write(engine.meet)!r}, workers=2, name="mirrored",
                            tensorboard=False, **where)
        emit(found=nodes.results())
    """)
    assert set(output["found"]) == {"worker-0", "worker-1"}
    assert min(accuracy for accuracy, _ in output["found"].values()) > 0.9
    read = Counter(number for _, numbers in output["found"].values() for number in numbers)
    assert read == dict.fromkeys(range(programs.RECORDS), programs.EPOCHS)


@pytest.mark.full
def test_chief_and_workers_are_ranks_of_hvd(engine: Engine) -> None:  # noqa: F811
    output = evaluate(engine, """
        def main_fun(args, ctx):
            import time
            import hopyard.collective as hvd
            if ctx.job_name == "ps":
                time.sleep(3600)
            hvd.init()
            return [hvd.rank(), hvd.size()]

        emit(ranks=cluster.run(main_fun, None, workers=2, ps=1, chief=True, tensorboard=False, **where).results())
    """)
    assert output["ranks"] == {"chief-0": [0, 3], "worker-0": [1, 3], "worker-1": [2, 3]}
