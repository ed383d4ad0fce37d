# SPDX-License-Identifier: Apache-2.0
"""The notebooks of examples/tour, executed by a real Jupyter kernel, in their directory."""
from __future__ import annotations

import ast
import os
import re
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest
from conftest import ROOT, Yard
from spark import repair
from test_gpus import gpus  # noqa: F401  (a fixture)

TOUR = ROOT / "examples" / "tour"
NOTEBOOKS = sorted(path.name for path in TOUR.glob("*.ipynb"))


class Tour:
    """The outputs of the code cells of an executed notebook."""

    def __init__(self, yard: Yard, name: str, env: dict[str, str] | None = None) -> None:
        notebook = nbformat.read(TOUR / name, as_version=4)
        client = nbclient.NotebookClient(notebook, timeout=280, kernel_name="python3",
                                         resources={"metadata": {"path": str(TOUR)}})
        before = sorted(os.listdir(TOUR))
        try:
            client.execute(env={**yard.env, **(env or {}), "HOPYARD_PROGRAM": yard.bin})
        except nbclient.exceptions.CellExecutionError as error:
            raise AssertionError(f"{error}\n{yard.driver_log()}") from error
        assert sorted(os.listdir(TOUR)) == before, "the repository is unchanged"
        self.cells: list[list[Any]] = [cell["outputs"] for cell in notebook.cells if cell["cell_type"] == "code"]

    def printed(self, cell: int) -> list[str]:
        assert {o["output_type"] for o in self.cells[cell]} == {"stream"}, self.cells[cell]
        return "".join(o["text"] for o in self.cells[cell]).splitlines()

    def value(self, cell: int) -> Any:
        (output,) = self.cells[cell]
        return ast.literal_eval(output["data"]["text/plain"])

    def table(self, cell: int) -> str:
        """The table below the cell at the end of its run, as text."""
        (output,) = (o for o in self.cells[cell] if o["output_type"] == "display_data")
        return re.sub("<[^>]*>", " ", output["data"]["text/html"])


def test_the_tour_is_complete() -> None:
    assert NOTEBOOKS == ["differential_evolution.ipynb", "distributed_training.ipynb", "grid_search.ipynb",
                         "several_gpus.ipynb", "spark_allreduce.ipynb", "spark_cluster.ipynb",
                         "spark_evolution.ipynb", "spark_grid_search.ipynb"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_no_outputs_are_stored_in_a_notebook(name: str) -> None:
    notebook = nbformat.read(TOUR / name, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell["cell_type"] == "code"]
    assert code and all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_references_of_a_notebook_exist(name: str) -> None:
    notebook = nbformat.read(TOUR / name, as_version=4)
    text = "\n".join(cell["source"] for cell in notebook.cells if cell["cell_type"] == "markdown")
    paths = [TOUR / link for link in re.findall(r"\]\(([^)#]+)", text)]
    paths += [TOUR / name for name in re.findall(r"`(\w+\.ipynb)`", text)]
    paths += [ROOT / page for page in re.findall(r"`(docs/[\w.]+)`", text)]
    assert not [str(path) for path in paths if not path.exists()]


def test_grid_search(yard: Yard) -> None:
    tour = Tour(yard, "grid_search.ipynb")
    assert tour.printed(0) == [f"the project is {yard.project}/"]
    assert tour.value(2) == {"learning_rate": [0.01, 0.01, 0.0001, 0.0001], "dropout": [0.1, 0.5, 0.1, 0.5]}
    trials = yard.trials()
    assert [t["state"] for t in trials] == ["done"] * 4
    [best] = [t for t in trials if t["params"] == tour.value(4)]
    assert best["value"] == max(t["value"] for t in trials)  # another may be as good
    assert best["params"]["learning_rate"] == 0.01, "the slow learner is worse"
    assert "4 of 4 trials" in tour.table(3) and "tensorboard" in tour.table(3)
    logs = tour.printed(5)
    assert [line.split()[0] for line in logs] == sorted(t["dir"] for t in trials)
    values = {t["dir"]: t["value"] for t in trials}
    for line in logs:
        name, *_, accuracy = line.split()
        assert float(accuracy) == pytest.approx(values[name], abs=1e-4)
    assert list((yard.logdir() / best["dir"] / "train").glob("events.out.tfevents.*"))


def test_differential_evolution(yard: Yard) -> None:
    tour = Tour(yard, "differential_evolution.ipynb")
    trials = yard.trials()
    assert len(trials) == 12 and {t["state"] for t in trials} == {"done"}
    params, metrics = tour.value(4)
    best = max(t["value"] for t in trials)
    assert metrics["accuracy"] == best and set(metrics) == {"accuracy", "loss", "weights"}
    assert params in [t["params"] for t in trials if t["value"] == best]
    assert 1e-4 <= params["learning_rate"] <= 1e-1 and 8 <= params["units"] <= 64
    assert params["activation"] in ("relu", "tanh")
    so_far = [float(line.split()[1]) for line in tour.printed(5)]
    assert so_far == sorted(so_far) and so_far == [max(t["value"] for t in trials[:n]) for n in (4, 8, 12)]
    (result,) = tour.cells[6]
    assert "best accuracy=" in result["data"]["text/html"] and result["data"]["text/html"].count("<tr") == 13
    assert tour.value(7) is True
    steps = yard.rows("SELECT trial, step FROM metrics WHERE name = 'accuracy' AND step >= 0 ORDER BY trial, step")
    assert {(row["trial"], row["step"]) for row in steps} >= {(n, s) for n in range(1, 13) for s in (0, 1)}, "report()"


def test_distributed_training(yard: Yard) -> None:
    tour = Tour(yard, "distributed_training.ipynb")
    accuracies = tour.value(3)
    assert len(accuracies) == 2 and accuracies[0] == accuracies[1] > 0.8 and tour.value(4) is True
    assert "2 ranks" in tour.table(2) and "together" in tour.table(2)
    assert tour.printed(5) == ["rank=0 rank 0 of 2 has seen 899 images", "rank=1 rank 1 of 2 has seen 898 images"]
    assert [t["state"] for t in yard.trials()] == ["done", "done"]
    assert list(Path(yard.logdir(), "rank=0", "train").glob("events.out.tfevents.*"))
    reporting = yard.rows("SELECT DISTINCT trial FROM metrics WHERE name = 'examples_per_second'")
    assert {row["trial"] for row in reporting} == {1, 2}


def test_several_gpus_on_a_machine_without_any(yard: Yard) -> None:
    tour = Tour(yard, "several_gpus.ipynb")
    assert [re.sub(r"[\d.]+$", "N", line) for line in tour.printed(4)] == [
        "{'learning_rate': 0.01} with 0 GPUs came to N", "{'learning_rate': 0.001} with 0 GPUs came to N"]
    for t in yard.trials():
        output = Path(yard.logdir(), t["dir"], "stdout").read_text().splitlines()
        assert output[0] == "0 GPUs leased, 1 replicas" and t["value"] > 0.5


def test_several_gpus_are_leased(gpus: Yard) -> None:
    """Two fake GPUs: each trial leases both, one trial after the other; TensorFlow finds no CUDA device."""
    yard = gpus
    yard.env["GPUS"] = "2"
    tour = Tour(yard, "several_gpus.ipynb")
    assert all("with 2 GPUs came to" in line for line in tour.printed(4)) and len(tour.printed(4)) == 2
    spans = sorted((a["started"], a["ended"]) for a in yard.attempts())
    assert spans[0][1] <= spans[1][0], "the GPUs suffice for one trial at a time"


# ---- on clusters: the environment configures a plain getOrCreate() -----------------------------------------------


def on_executors(yard: Yard) -> bool:
    return all(re.match(r"executor-\d+@", a["agent"]) for a in yard.attempts())


def test_grid_search_on_spark(yard: Yard, spark_cluster: dict[str, Any]) -> None:
    repair("spark", spark_cluster)
    tour = Tour(yard, "spark_grid_search.ipynb", spark_cluster["spark_env"])
    assert tour.printed(1)[-1] == f"2 executors at {spark_cluster['spark']}"
    trials = yard.trials()
    assert [t["state"] for t in trials] == ["done"] * 4 and on_executors(yard)
    [best] = [t for t in trials if t["params"] == tour.value(4)]
    assert best["value"] == max(t["value"] for t in trials) and "4 of 4 trials" in tour.table(3)  # another may be as good
    assert [line.split()[0] for line in tour.printed(5)] == sorted(t["dir"] for t in trials)
    assert tour.value(6) is True and list((yard.logdir() / best["dir"] / "train").glob("events.out.tfevents.*"))


def test_evolution_on_spark(yard: Yard, spark_cluster: dict[str, Any]) -> None:
    repair("spark", spark_cluster)
    tour = Tour(yard, "spark_evolution.ipynb", spark_cluster["spark_env"])
    trials = yard.trials()
    assert len(trials) == 12 and {t["state"] for t in trials} == {"done"} and on_executors(yard)
    params, metrics = tour.value(3)
    assert metrics["accuracy"] == max(t["value"] for t in trials) > 0.9 and set(params) == {"C", "gamma"}
    assert [float(line.split()[1]) for line in tour.printed(4)] == [max(t["value"] for t in trials[:n]) for n in (4, 8, 12)]
    assert tour.printed(5) == [f"kept {metrics['vectors']:.0f} of 1257 images"]


def test_allreduce_on_yarn(yard: Yard, yarn_cluster: dict[str, Any]) -> None:
    repair("yarn", yarn_cluster)
    tour = Tour(yard, "spark_allreduce.ipynb", yarn_cluster["yarn_env"])
    accuracies = tour.value(3)
    assert len(accuracies) == 2 and accuracies[0] == accuracies[1] > 0.8 and tour.value(4) is True
    assert "2 ranks" in tour.table(2) and on_executors(yard)
    assert tour.printed(5) == ["rank=0 rank 0 of 2 has seen 899 images", "rank=1 rank 1 of 2 has seen 898 images"]
    assert "/application_" in str(yard.logdir()) and list(Path(yard.logdir(), "rank=0", "train").glob("events.out.tfevents.*"))


def test_cluster_fed_on_yarn(yard: Yard, yarn_cluster: dict[str, Any]) -> None:
    repair("yarn", yarn_cluster)
    tour = Tour(yard, "spark_cluster.ipynb", yarn_cluster["yarn_env"])
    assert tour.value(2) == 1797 and tour.value(5) is True and tour.value(7) == (1000, True)
    assert [t["dir"] for t in yard.trials(1)] == ["node=chief-0", "node=worker-0"] and on_executors(yard)
    assert Path(yard.logdir(1), "node=chief-0", "stdout").read_text().startswith("chief 0 has seen ")
