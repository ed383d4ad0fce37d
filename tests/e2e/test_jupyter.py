# SPDX-License-Identifier: Apache-2.0
"""`hopyard notebook`: a real JupyterLab, its kernels, and what its options are in them."""
from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hopyard
import nbformat
import pytest
from conftest import Yard, wait_for
from hopyard._jupyter.kernel import names_read
from IPython.core.inputtransformer2 import TransformerManager
from lab import ADDRESS, CellError, Lab
from spark import repair

Start = Callable[..., Lab]

CROWD = """
import os, time
def crowd(x, here, expected):
    "How many were here with it, at most. It waits until there were once as many as expected, and then for one too many."
    mine, seen = f"{here}/{os.getpid()} {x}", f"{here}-seen"
    open(mine, "w").close()
    most = 0
    while not os.path.exists(seen):
        if len(os.listdir(here)) >= expected:
            open(seen, "w").close()
        time.sleep(0.02)
    for _ in range(30):
        most = max(most, len(os.listdir(here)))
        time.sleep(0.02)
    os.unlink(mine)
    return most

def gather(*spark, expected):
    here = os.path.abspath(f"here-{time.time()}")
    os.mkdir(here)
    space = {"x": list(range(expected + 2)), "here": [here], "expected": [expected]}
    experiment.grid_search(*spark, crowd, space, tensorboard=False)
"""


@pytest.fixture
def lab(yard: Yard) -> Iterator[Start]:
    """Starts servers, which end with the test."""
    labs: list[Lab] = []

    def start(*options: object, **more: Any) -> Lab:
        labs.append(Lab(yard, *options, **more))
        return labs[-1]
    yield start
    for each in labs:
        each.kill()


def processes(yard: Yard, *names: str) -> list[str]:
    return [command for name in names for command in yard.processes(name)]


# ---- modes -------------------------------------------------------------------------------------------------------


def test_experiments_have_the_number_of_executors_and_limits_of_the_form(yard: Yard, lab: Start) -> None:
    server = lab("--mode", "experiments", "--executors", 3, "--parallel", 2, "--executor-memory", 300, "--executor-gpus", 0)
    assert server.request("GET", "/api/kernelspecs")[1]["kernelspecs"]["python3"]["spec"]["display_name"] == "hopyard (experiments)"
    kernel = server.kernel()
    assert kernel.run("from hops import util, experiment\nimport hopyard\nutil.num_executors(), util.num_param_servers()") == "(3, 0)"
    kernel.run(CROWD)
    kernel.run("gather(expected=2)")
    assert max(t["value"] for t in yard.trials()) == 2, "without a session, as newer versions of hops are called"
    assert "spark" not in kernel.run("[name for name in dir() if name in ('spark', 'sc')]"), "no JVM has been started yet"
    assert kernel.run("%%time\nspark.range(3).count()") == "3"
    assert "Starting Spark (local, 3 executors)" in kernel.printed and "WARN" not in kernel.printed
    assert kernel.run("util.num_executors(spark), util.num_param_servers(spark), sc is spark.sparkContext") == "(3, 0, True)"
    kernel.run("gather(spark, expected=2)")
    assert max(t["value"] for t in yard.trials()) == 2, "as older versions are called"
    with pytest.raises(CellError, match=r"killed: used .* of the 300.0 MB it may use"):
        kernel.run("experiment.launch(lambda: len(bytearray(400_000_000)) * 0, tensorboard=False)")
    kernel.run("def visible():\n    import os\n    return {'hidden': int(os.environ['CUDA_VISIBLE_DEVICES'] in ('', '-1'))}")
    assert kernel.run("hopyard.experiment.launch(visible, metric='hidden', tensorboard=False).best.metric") == "1.0", "0 GPUs"
    assert Path(kernel.run("import os; os.environ['HOPYARD_PROJECT']").strip("'")) == yard.project
    server.end()


def test_tensorflowonspark_has_the_nodes_of_the_form(yard: Yard, lab: Start) -> None:
    server = lab("--mode", "tfonspark", "--executors", 3, "--parameter-servers", 1)
    kernel = server.kernel("tour")
    assert kernel.run("from hops import util\nfrom tensorflowonspark import TFCluster\n"
                      "util.num_executors(spark), util.num_param_servers(spark)") == "(3, 1)"
    kernel.run("def main_fun(args, ctx):\n    print(ctx.job_name, ctx.task_index)\n"
               "cluster = TFCluster.run(sc, main_fun, None, util.num_executors(spark), util.num_param_servers(spark))\n"
               "cluster.shutdown()")
    assert sorted(t["dir"] for t in yard.trials()) == ["node=ps-0", "node=worker-0", "node=worker-1"]
    server.end()


def test_allreduce_has_the_ranks_of_the_form(yard: Yard, lab: Start) -> None:
    server = lab("--mode", "allreduce", "--executors", 2)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(
        "import horovod.tensorflow as hvd\nhvd.init()\nprint(hvd.rank(), 'of', hvd.size())")])
    nbformat.write(notebook, yard.project / "Jupyter" / "train.ipynb")
    kernel = server.kernel()
    kernel.run("import horovod.tensorflow as hvd\nfrom hops import allreduce, util")
    assert kernel.run("util.num_executors()") == "2"
    kernel.run("allreduce.launch(spark, 'Jupyter/train.ipynb', tensorboard=False)")
    printed = [(yard.logdir() / f"rank={rank}" / "stdout").read_text().strip() for rank in (0, 1)]
    assert printed == ["0 of 2", "1 of 2"]
    server.end()


def test_experiments_run_on_the_executors_of_the_engine(yard: Yard, lab: Start, spark_cluster: dict[str, Any]) -> None:
    repair("spark", spark_cluster)
    server = lab("--engine", spark_cluster["spark"], "--executors", 2, "--executor-memory", 600, env=spark_cluster["spark_env"])
    kernel = server.kernel()
    kernel.run("from hops import experiment, util\nlogdir, best = experiment.grid_search(lambda x: x, {'x': [1, 2, 3]}, tensorboard=False)")
    assert kernel.run("best") == "{'x': 3}" and len(yard.attempts()) == 3
    assert all(a["agent"].startswith("executor-") for a in yard.attempts()), "the session need not be passed"
    assert kernel.run("util.num_executors(), util.num_executors(spark), sc.master") == f"(2, 2, '{spark_cluster['spark']}')"
    conf = kernel.run("[sc.getConf().get(f'spark.executor.{name}') for name in ('instances', 'memory', 'memoryOverhead')]")
    assert conf == "['2', '600m', '600m']"
    assert kernel.run("from pyspark.sql import SparkSession\nSparkSession.builder.getOrCreate() is spark") == "True"
    server.end(signal.SIGTERM)


def test_engine_that_cannot_be_reached_is_an_error_below_the_cell(yard: Yard, lab: Start) -> None:
    server = lab("--engine", "spark://127.0.0.1:1")
    kernel = server.kernel()
    with pytest.raises(CellError, match="NameError: name 'spark' is not defined"):
        kernel.run("spark.range(3)")
    assert "hopyard: cannot create a Spark session at 'spark://127.0.0.1:1'" in kernel.printed and "its log is" in kernel.printed
    assert kernel.run("1 + 1") == "2", "the kernel can be used"
    server.end()


# ---- cells that need a session -----------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", [
    "spark.range(3)",
    "experiment.launch(spark, f)",
    "def f():\n    return sc.master",
    "class A:\n    def f(self):\n        return [spark for _ in range(2)]",
    "await f(spark)",
    "print(f'{spark.version}')",
    "%%time\nspark.range(3).count()",
    "%timeit spark.range(3).count()",
    "x = 1\n%time sc.parallelize([1]).count()",
    "session = SparkSession.builder.getOrCreate()",
    "pyspark.sql.SparkSession.builder.getOrCreate()",
])
def test_session_is_created_by_cells_that_read_it(cell: str) -> None:
    assert names_read(TransformerManager().transform_cell(cell))


@pytest.mark.parametrize("cell", [
    "spark = None",
    "def f(spark):\n    return spark.version",
    "[spark for spark in range(3)]",
    "from pyspark.sql import SparkSession",
    "# spark",
    "'spark'",
    "import hopyard.spark",
    "conf.spark",
    "%%bash\necho sparks",
    "not python at all",
    "",
    "\x00",
])
def test_session_is_not_created_by_other_cells(cell: str) -> None:
    assert not names_read(TransformerManager().transform_cell(cell))


# ---- the tour --------------------------------------------------------------------------------------------------


def test_tour_is_there_and_runs_in_the_kernel(yard: Yard, lab: Start) -> None:
    server = lab("--parallel", 1)
    status, listed = server.request("GET", "/api/contents/tour")
    assert status == 200
    assert "grid_search.ipynb" in [entry["name"] for entry in listed["content"]]
    kernel = server.kernel("tour")
    for cell in nbformat.read(yard.project / "Jupyter/tour/grid_search.ipynb", as_version=4).cells:
        if cell["cell_type"] == "code":
            kernel.run(cell["source"])
    assert [t["state"] for t in yard.trials()] == ["done"] * 4, "in the project's store"
    assert "learning_rate" in kernel.run("best")
    server.end()


def test_tour_of_a_project_is_not_replaced(yard: Yard, lab: Start) -> None:
    mine = yard.project / "Jupyter/tour"
    mine.mkdir(parents=True)
    (mine / "grid_search.ipynb").write_text("mine")
    lab().end()
    assert os.listdir(mine) == ["grid_search.ipynb"] and (mine / "grid_search.ipynb").read_text() == "mine"


# ---- access ----------------------------------------------------------------------------------------------------


def test_server_requires_its_token_and_kernels_use_private_sockets(yard: Yard, lab: Start) -> None:
    server = lab()
    assert server.request("GET", "/api/contents", token="0" * 48)[0] == 403
    assert server.request("GET", "/api/contents")[0] == 200
    listening = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines() if line.split()[3] == "0A"]
    assert [a for a in listening if a.endswith(f":{server.port:04X}")] == [f"0100007F:{server.port:04X}"], "127.0.0.1 only"
    server.kernel().run("1")
    [connection] = (yard.runtime / "hopyard").glob("kernel-*.json")
    assert json.loads(connection.read_text())["transport"] == "ipc" and connection.stat().st_mode & 0o77 == 0
    assert (yard.runtime / "hopyard").stat().st_mode & 0o77 == 0
    server.end()
    assert not list((yard.runtime / "hopyard").glob("kernel-*"))


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self.path))


def test_behind_a_proxy_it_listens_on_a_socket_below_a_prefix(yard: Yard) -> None:
    path = yard.runtime / "lab.sock"
    process = yard.start("notebook", "--sock", path, "--prefix", "/jupyter/7/", env={**yard.env, "HOPYARD_PYTHON": sys.executable, "HOPYARD_APP_TOKEN": "secret"})
    wait_for(path.exists, "the server listens")
    assert path.stat().st_mode & 0o777 == 0o600

    def status(target: str, **fields: str) -> int:
        connection = UnixConnection(path)
        connection.request("GET", target, headers=fields)
        return connection.getresponse().status
    assert status("/jupyter/7/api/contents", Authorization="token secret", Host="lab.example.org") == 200
    assert status("/jupyter/7/api/contents") == 403 and status("/api/contents", Authorization="token secret") == 404
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=60) == ("", "") and process.returncode == 0


# ---- its end ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda n: n.name)
def test_kernels_and_their_jvms_end_with_the_server_but_runs_continue(yard: Yard, lab: Start, number: int) -> None:
    server = lab()
    kernel = server.kernel()
    kernel.run("spark.range(1).count()\n"
               "from hopyard import experiment\nimport os, time\n"
               "def slow(x):\n    while not os.path.exists('gate'):\n        time.sleep(0.05)\n    return x\n"
               "experiment.grid_search(slow, {'x': [1]}, tensorboard=False, detach=True)")
    assert processes(yard, "ipykernel_launcher", "SparkSubmit")
    server.process.send_signal(number)
    server.process.communicate(timeout=60)
    wait_for(lambda: not processes(yard, "ipykernel_launcher", "SparkSubmit", "hopyard._jupyter"), "all processes end")
    assert yard.state() == "running"
    (yard.project / "Jupyter" / "gate").touch()
    wait_for(lambda: yard.state() == "done", "the run ends")


# ---- errors ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "sentence"), [
    (["--mode", "fast"], "--mode takes experiments, tfonspark or allreduce, not 'fast'"),
    (["--engine", "mesos"], "--engine takes local, spark://HOST:PORT or yarn, not 'mesos'"),
    (["--executors", "0"], "--executors"),
    (["--executor-memory", "4G"], "--executor-memory"),
    (["--mode", "allreduce", "--parallel", "2"], "--parallel has no effect with --mode allreduce; remove it"),
    (["--parameter-servers", "1"], "--parameter-servers has no effect with --mode experiments; remove it"),
    (["--mode", "tfonspark", "--executors", "2", "--parameter-servers", "2"], "must be less than the number of executors (2)"),
    (["--port", "70000"], "--port"),
    (["--sock", "/tmp/x", "--port", "8888"], "--port cannot be used with --sock"),
    (["--sock", "/tmp/" + 120 * "x"], "--sock takes a path of at most 107 bytes"),
    (["--prefix", "/x/"], "--prefix requires --sock"),
    (["--sock", "/tmp/x", "--prefix", "x"], "must start and end with '/'"),
])
def test_invalid_options_are_refused(yard: Yard, options: list[str], sentence: str) -> None:
    refused = yard.run("notebook", *options, rc=2)
    assert refused.stderr.startswith("hopyard notebook: ") and sentence in refused.stderr and refused.stderr.count("\n") == 1
    assert not (yard.project / "Jupyter").exists()


def test_project_on_hdfs_is_refused(yard: Yard, hdfs: Any) -> None:
    refused = yard.run("notebook", "--project", f"{hdfs.url}/projects/lab", rc=2)
    assert "JupyterLab needs a directory on this machine" in refused.stderr


def test_missing_jupyterlab_is_explained_in_one_line(yard: Yard, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    [packages] = (tmp_path / "bare/lib").glob("python*/site-packages")
    (packages / "hopyard").symlink_to(Path(hopyard.__file__).parent)
    python = tmp_path / "bare/bin/python3"
    refused = yard.run("notebook", rc=1, env={"HOPYARD_PYTHON": str(python)})
    assert refused.stdout == "" and refused.stderr == (
        f"hopyard notebook: JupyterLab is not installed for {python} (No module named 'jupyterlab'); install it with: "
        f"{python} -m pip install jupyterlab\n")


def test_port_in_use_is_an_error_if_it_was_given(yard: Yard) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = yard.run("notebook", "--no-browser", "--port", port, rc=1, env={"HOPYARD_PYTHON": sys.executable})
    assert str(port) in refused.stderr and "Traceback" not in refused.stderr and not ADDRESS.search(refused.stdout)


def test_directory_that_cannot_be_created_is_explained_in_one_line(yard: Yard) -> None:
    (yard.project / "Jupyter").write_text("a file")
    refused = yard.run("notebook", "--no-browser", rc=1, env={"HOPYARD_PYTHON": sys.executable})
    assert refused.stderr.startswith("hopyard notebook: cannot create the directory of notebooks: ")
    assert refused.stderr.count("\n") == 1
