# SPDX-License-Identifier: Apache-2.0
"""The examples of README.md run unchanged, and links of the documentation have targets."""
from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Yard

PAGES = sorted(str(p.relative_to(ROOT)) for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def blocks(language: str, page: str = "README.md") -> list[str]:
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", (ROOT / page).read_text())


def test_commands_of_the_readme_run(yard: Yard) -> None:
    (commands,) = blocks("sh")
    p = subprocess.run(["bash", "-eu", "-c", commands], env=yard.env, cwd=yard.project, text=True,
                       stdin=subprocess.DEVNULL, capture_output=True, timeout=240)
    assert p.returncode == 0, p.stdout + p.stderr
    assert "20 done" in p.stdout and [t["state"] for t in yard.trials()] == ["done"] * 20
    for t in yard.trials():
        assert t["value"] == pytest.approx(t["params"]["x"] ** 2 + t["params"]["y"], rel=1e-5), "also for negative x"
    best = min(t["value"] for t in yard.trials())
    assert f"f={best:g}" in p.stdout and re.search(r"(?m)^ *1  bowl ", p.stdout)


def test_each_block_of_the_readme_imports_what_it_needs() -> None:
    """Below they run as one script, in which a block could use the imports of another."""
    for block in blocks("python"):
        before, found, _ = block.partition("from hops import" if "from hops import" in block else "from tensorflowonspark import")
        assert not found or "import hopyard.compat" in before, block
    learn = re.search("(?m)^LEARN .*", (ROOT / "Makefile").read_text())
    assert learn and "pandas" in learn[0].split(), "result.to_dataframe() works after make demo"


def test_python_of_the_readme_runs(yard: Yard, yarn_cluster: dict[str, Any]) -> None:
    script = yard.project / "readme.py"
    script.write_text("\n".join(blocks("python")) + "print('evolved', trial.number, 'trained', logdir, best)\n")
    p = subprocess.run([sys.executable, script], env={**yard.env, **yarn_cluster["yarn_env"], "HOPYARD_PROGRAM": yard.bin}, cwd=yard.project, text=True,
                       stdin=subprocess.DEVNULL, capture_output=True, timeout=420)
    assert p.returncode == 0, p.stdout + p.stderr + yard.driver_log()
    assert [t["state"] for t in yard.trials(1)] == ["done"] * 4 and [t["state"] for t in yard.trials(2)] == ["done"]
    assert [t["state"] for t in yard.trials(3)] == ["done"] * 2
    assert [t["state"] for t in yard.trials(4)] == ["done"] * 2 and [t["state"] for t in yard.trials(5)] == ["done"] * 2
    assert [t["state"] for t in yard.trials(6)] == ["done"] * 2
    assert p.stdout.splitlines()[-1].startswith("evolved ") and f"trained {yard.logdir(2)} " in p.stdout


def run(yard: Yard, env: dict[str, str], *command: object) -> str:
    p = subprocess.run([str(word) for word in command], env={**yard.env, **env, "HOPYARD_PROGRAM": yard.bin}, cwd=yard.project,
                       text=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=240)
    assert p.returncode == 0, p.stdout + p.stderr + yard.driver_log()
    return p.stdout


TRAIN = """
import sys
import hopyard.collective as hvd
hvd.init()
print(f"rank={hvd.rank()} accuracy={0.5 if '0.1' in sys.argv else 0.7}")
"""


def test_first_steps_on_spark_run(yard: Yard, yarn_cluster: dict[str, Any], spark_cluster: dict[str, Any]) -> None:
    """docs/spark.md, with a training in place of its dots, and this cluster's address."""
    first, second, *_ = blocks("python", "docs/spark.md")
    assert "    ...  " in first and "np=2" in second
    script = yard.project / "spark.py"
    script.write_text("def fn():\n    import os\n    return 'CONTAINER_ID' in os.environ\n\n"
                      + first.replace("    ...  ", "    accuracy = learning_rate * dropout  ")
                      + second.replace("allreduce.run(", "output = allreduce.run(") + "print(output)\n")
    assert run(yard, yarn_cluster["yarn_env"], sys.executable, script).splitlines()[-1] == "[True, True]"
    assert [t["state"] for t in yard.trials(1)] == ["done"] * 4
    [commands] = blocks("sh", "docs/spark.md")
    on_yarn, on_spark = commands.splitlines()
    (yard.project / "train.py").write_text(TRAIN)
    env = {"HOPYARD_PYTHON": sys.executable}
    assert "best accuracy=0.7" in run(yard, {**yarn_cluster["yarn_env"], **env}, "bash", "-c", on_yarn)
    output = run(yard, {**spark_cluster["spark_env"], **env}, "bash", "-c", on_spark.replace("spark://master:7077", spark_cluster["spark"]))
    assert sorted(output.splitlines()) == [f"[{rank}] rank={rank} accuracy=0.7" for rank in range(4)]


@pytest.mark.parametrize("page", PAGES)
def test_links_have_targets(page: str) -> None:
    folder = (ROOT / page).parent
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)[^)]*\)", (ROOT / page).read_text())
    missing = [link for link in links if not Path(folder, link).exists()]
    assert not missing
