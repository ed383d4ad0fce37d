# SPDX-License-Identifier: Apache-2.0
"""A standalone Spark."""
from __future__ import annotations

import argparse
from pathlib import Path

from part import GPUS, WORKERS, NotReady, Part
from system import ask_json, find_pyspark, write_properties


class Spark(Part):
    """A Master and Workers with two cores, 2 GB and two fake GPUs each."""

    name = "spark"
    runs_spark = True
    workers = joiners = [f"worker{i + 1}" for i in range(WORKERS)]
    daemons = ["master", *workers]
    ports_of = {"master": ["master", "master_page"], **{w: [w, f"{w}_page"] for w in workers}}

    def __init__(self, state: Path, options: argparse.Namespace) -> None:
        super().__init__(state, options)
        self.host, self.away = options.address, options.away

    def configure(self) -> None:
        write_properties(self.folder / "daemon.conf", {
            "spark.port.maxRetries": 0,  # or a daemon takes the next port, and workers join another master
            "spark.master.rest.enabled": "false",
            "spark.worker.resource.gpu.amount": GPUS,
            "spark.worker.resource.gpu.discoveryScript": Path(__file__).with_name("gpu.sh"),
        })
        write_properties(self.conf / "spark-defaults.conf", {
            "spark.master": f"spark://{self.address('master')}",
            "spark.ui.port": 0,
            "spark.ui.showConsoleProgress": "false",
        })

    def environment(self, daemon: str) -> dict[str, str]:
        return {**super().environment(daemon), "SPARK_HOME": str(find_pyspark()), "SPARK_CONF_DIR": str(self.conf),
                "SPARK_LOCAL_IP": self.host_of(daemon), "SPARK_LOCAL_DIRS": str(self.folder / "tmp"),
                "SPARK_DAEMON_MEMORY": "512m"}

    def is_remote(self, daemon: str) -> bool:
        return bool(self.away) and daemon == self.workers[-1]

    def host_of(self, daemon: str) -> str:
        return self.away[1] if self.is_remote(daemon) else self.host

    def command(self, daemon: str) -> list[str]:
        start = [str(find_pyspark() / "bin/spark-class")]
        if self.is_remote(daemon):
            start = ["nsenter", "--target", self.away[0], "--net", "--uts", *start]
        common = ["-h", self.host_of(daemon), "-p", str(self.ports[daemon]),
                  "--webui-port", str(self.ports[f"{daemon}_page"]), "--properties-file", str(self.folder / "daemon.conf")]
        if daemon == "master":
            return [*start, "org.apache.spark.deploy.master.Master", *common]
        return [*start, "org.apache.spark.deploy.worker.Worker", *common, "-c", "2", "-m", "2g",
                "-d", str(self.folder / daemon), f"spark://{self.address('master')}"]

    def not_ready(self) -> NotReady | None:
        page = ask_json(self.address("master_page"), "/json/")
        if page is None:
            return NotReady("the master's page does not answer", "master")
        alive = {w["port"] for w in page["workers"] if w["state"] == "ALIVE"}
        for worker in self.workers:
            if self.ports[worker] not in alive:
                return NotReady(f"{worker} has not joined the master", worker)
        if len(alive) > WORKERS:
            return NotReady("the master still lists a dead worker", "master")
        return None

    def addresses(self) -> dict[str, str]:
        return {"spark": f"spark://{self.address('master')}", "spark_page": f"http://{self.address('master_page')}"}

    def program_environment(self) -> dict[str, str]:
        return {"MASTER": f"spark://{self.address('master')}", **super().program_environment()}
