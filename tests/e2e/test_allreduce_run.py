# SPDX-License-Identifier: Apache-2.0
"""hopyard.allreduce: functions and notebooks on many ranks, from a process that is not a rank."""
from __future__ import annotations

import json
import re
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
from conftest import Yard
from needs import need_root
from test_experiment import Lab, lab  # noqa: F401  (a fixture)

HEAD = """
from hopyard import allreduce

def failing(call):
    try:
        call()
    except hopyard.Error as error:
        return [type(error).__name__, str(error)]
"""


def evaluate(lab: Lab, code: str) -> Any:
    return lab.evaluate(HEAD + textwrap.dedent(code))


def test_return_values_are_ordered_by_rank(yard: Yard, lab: Lab) -> None:
    output = evaluate(lab, """
        import numpy
        SCALE = numpy.array([10.0])

        def training(base, power=1):
            import hopyard.collective as hvd
            hvd.init()
            print("rank", hvd.rank(), os.environ["COLOUR"])
            total = hvd.allreduce(SCALE * (base + hvd.rank()) ** power, op=hvd.Sum)
            return {"sum": float(total[0]), "rank": hvd.rank(), "set": {1, hvd.size()}, "array": total}

        results = allreduce.run(training, (1,), {"power": 2}, np=3, env={"COLOUR": "blue"}, name="three", tensorboard=False)
        emit(results=[[r["sum"], r["rank"], sorted(r["set"]), type(r["array"]).__name__] for r in results])
    """)
    assert output["results"] == [[140.0, rank, [1, 3], "ndarray"] for rank in range(3)]
    trials = yard.trials()
    assert [t["dir"] for t in trials] == ["rank=0", "rank=1", "rank=2"] and {t["state"] for t in trials} == {"done"}
    assert Path(yard.logdir(), "rank=2", "stdout").read_text() == "rank 2 blue\n"
    assert "three" in yard.run("ls").stdout
    last = yard.rows("SELECT value FROM metrics WHERE trial = 2 AND name = 'sum'")
    assert last and last[-1]["value"] == 140.0, "numbers that a rank returns are its metrics"


def test_functions_are_bound_to_their_cores(lab: Lab) -> None:
    """They are forked, not started: the agent binds them before they run."""
    output = evaluate(lab, """
        ranks = max(2, len(os.sched_getaffinity(0)))
        shares = allreduce.run(lambda: sorted(os.sched_getaffinity(0)), np=ranks, tensorboard=False)
        emit(shares=shares, all=sorted(os.sched_getaffinity(0)), ranks=ranks)
    """)
    each = [[core] for core in output["all"]]
    assert sorted(output["shares"]) == (each if len(each) == output["ranks"] else [output["all"]] * output["ranks"])


def test_failed_rank_is_raised_with_its_traceback(yard: Yard, lab: Lab) -> None:
    """The others fail as well, because the rank is lost; their errors are not shown."""
    output = evaluate(lab, """
        def training():
            import hopyard.collective as hvd
            hvd.init()
            if hvd.rank() == 1:
                raise ValueError("rank one says no")
            hvd.barrier()

        emit(error=failing(lambda: allreduce.run(training, np=2, tensorboard=False)))
    """)
    kind, text = output["error"]
    assert kind == "TrialsFailed" and text.startswith("rank 1 of run 1 failed: Traceback")
    assert 'raise ValueError("rank one says no")' in text and text.rstrip().endswith("ValueError: rank one says no")


def test_invalid_arguments_are_refused_before_the_start(yard: Yard, lab: Lab) -> None:
    output = evaluate(lab, """
        def training(epochs):
            return epochs

        emit(errors=[failing(lambda: allreduce.run(training, np=2)),
                    failing(lambda: allreduce.run(training, (1,), {"epochs": 2})),
                    failing(lambda: allreduce.run(3)),
                    failing(lambda: allreduce.run(training, (1,), np=0)),
                    failing(lambda: allreduce.run(training, (1,), np=2, min_np=3)),
                    failing(lambda: allreduce.run_notebook("missing.ipynb"))])
    """)
    errors = [text for _, text in output["errors"]]
    assert errors[0] == "training() cannot be called with these arguments: missing a required argument: 'epochs'"
    assert "multiple values for argument 'epochs'" in errors[1] and errors[2] == "3 is not a function"
    assert "1" in errors[3] and "3" in errors[4] and errors[5] == "cannot read the notebook 'missing.ipynb': No such file or directory"
    assert yard.state() == "", "there is no run"


def test_unpicklable_values_are_refused_with_a_message(lab: Lab) -> None:
    output = evaluate(lab, """
        def training():
            import threading
            return threading.Lock()

        emit(error=failing(lambda: allreduce.run(training, np=1, tensorboard=False)))
    """)
    assert "training returned <unlocked _thread.lock object" in output["error"][1]
    assert "which cannot be pickled" in output["error"][1]


def test_result_that_does_not_fit_on_the_disk_fails_the_training_with_a_message(yard: Yard, lab: Lab) -> None:
    """A disk of half a megabyte for the logs only; what rank 1 returns is larger."""
    need_root("to mount a small disk")
    logs = yard.project / "Logs"
    logs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", logs], check=True)
    try:
        output = evaluate(lab, """
            def training():
                import hopyard.collective as hvd
                hvd.init()
                returned = bytes(hvd.rank() << 20)
                hvd.barrier()
                if hvd.rank() == 0:
                    hvd.barrier()  # it reports the loss of rank 1
                return returned

            emit(error=failing(lambda: allreduce.run(training, np=2, tensorboard=False)))
        """)
        yard.wait_idle()
        left = list(logs.rglob("result.pickle*"))
    finally:
        subprocess.run(["umount", "-l", logs], check=True)
    kind, text = output["error"]
    assert kind == "TrialsFailed" and re.fullmatch(
        r"rank 1 of run 1 failed: disk full: cannot write 10\d+ bytes to '\S+/rank=1/result\.pickle'; free some space", text), text
    assert yard.state() == "failed" and not left, "a partial result is removed: it is useless and takes space"


def test_elastic_training_returns_the_values_of_the_ranks_that_finish(lab: Lab) -> None:
    output = evaluate(lab, """
        def training():
            import signal
            import hopyard
            import hopyard.collective as hvd
            hvd.init()
            if hvd.rank() == 1 and not os.path.exists("died"):
                open("died", "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            while True:
                try:
                    hvd.barrier()
                    return hvd.rank()
                except hopyard.GroupError:
                    hvd.shutdown()
                    hvd.init()

        emit(results=allreduce.run(training, np=2, min_np=1, tensorboard=False))
    """)
    assert output["results"] in ([0], [0, 1]), "the lost rank may rejoin in time"


def test_horovod_run(lab: Lab) -> None:
    output = evaluate(lab, """
        import hopyard.compat, horovod, warnings

        def training(x):
            import hopyard.collective as hvd
            hvd.init()
            return x + hvd.rank()

        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            old = horovod.run(training, (10,), np=2)
        emit(new=horovod.run(training, args=(1,), num_proc=2, use_gloo=True, start_timeout=30), old=old,
            warned=[str(w.message) for w in warned if w.category is DeprecationWarning],
            errors=[failing(lambda: horovod.run(training, (1,), use_mpi=True)),
                    failing(lambda: horovod.run(training, (1,), host_discovery_script="find.sh"))])
    """)
    assert output["new"] == [1, 2] and output["old"] == [10, 11]
    assert "np is deprecated, use num_proc instead" in output["warned"]
    assert "does not use MPI" in output["errors"][0][1] and "--listen" in output["errors"][1][1]


# ---- notebooks ------------------------------------------------------------------------------------

CELLS = [
    ("markdown", "# A training"),
    ("code", "import os\nimport hopyard.compat\nfrom hops import hdfs, tensorboard\nimport horovod"),
    ("code", "%env COLOUR=green\n!echo shell says hello"),
    ("code", "import numpy, hopyard.collective as hvd\nhvd.init()\n\ndef rank():\n    return hvd.rank()"),
    ("code", "total = hvd.allreduce(numpy.array([1.0 + rank()]), op=hvd.Sum)\n"
             "hdfs.log(f'total {total[0]}')\nopen(os.path.join(tensorboard.logdir(), 'mark'), 'w').close()\n"
             "print(os.environ['COLOUR'], horovod.__version__)\nfloat(total[0])"),
    ("code", "display(rank())\nrank();"),
]


def notebook(path: Path, cells: list[tuple[str, str]]) -> None:
    extra: dict[str, Any] = {"metadata": {}}
    made = [{"cell_type": kind, "source": source.splitlines(keepends=True), **extra,
             **({"outputs": [], "execution_count": None} if kind == "code" else {})} for kind, source in cells]
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))


@pytest.mark.parametrize("path", ["/Projects/project/Jupyter/horovod.ipynb", "Jupyter/horovod.ipynb", "horovod.ipynb"])
def test_hops_launch_runs_a_notebook_of_the_project_on_every_worker(yard: Yard, lab: Lab, path: str) -> None:
    notebook(yard.project / "Jupyter" / "horovod.ipynb", CELLS)
    output = evaluate(lab, f"""
        import hopyard.compat
        from hops import allreduce

        class Session:                       # the two attributes of a session
            master = "local[2]"
            applicationId = "app-7"
            sparkContext = property(lambda self: self)
            def getConf(self):
                return {{"spark.executor.instances": "2"}}

        emit(logdir=allreduce.launch(Session(), {path!r}))
    """)
    logdir = Path(output["logdir"])
    assert logdir == yard.project / "Logs" / "TensorFlow" / "app-7" / "1"
    for rank in (0, 1):
        folder = logdir / f"rank={rank}"
        printed = (folder / "stdout").read_text().splitlines()
        assert printed[1:] == ["shell says hello", "green 0.28.1", "3.0", str(rank)] and "COLOUR" in printed[0]
        assert (folder / "trial.log").read_text().endswith(": total 3.0\n") and (folder / "mark").exists()


def test_error_names_the_notebook_and_the_cell(yard: Yard, lab: Lab) -> None:
    notebook(yard.project / "wrong.ipynb", [("code", "x = 1"), ("markdown", "no code"), ("code", "y = 2\nz = x / 0")])
    output = evaluate(lab, "emit(error=failing(lambda: allreduce.run_notebook('wrong.ipynb', np=1, tensorboard=False)))")
    text = output["error"][1]
    assert "cell 2 of wrong.ipynb: ZeroDivisionError: division by zero" in text
    assert "<wrong.ipynb, cell 2>" in text and "z = x / 0" in text


def test_missing_notebook_is_named(yard: Yard, lab: Lab) -> None:
    (yard.project / "text.ipynb").write_text("no notebook")
    output = evaluate(lab, """
        import hopyard.compat
        from hops import allreduce as hops
        emit(errors=[failing(lambda: hops.launch(None, "nothing.ipynb")), failing(lambda: hops.launch("text.ipynb"))])
    """)
    missing, text = (error for _, error in output["errors"])
    assert missing == f"there is no notebook '{yard.project}/nothing.ipynb'; a project's notebooks are in its directory Jupyter"
    assert "is not a notebook of format 4" in text
