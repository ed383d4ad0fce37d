# SPDX-License-Identifier: Apache-2.0
"""YARN over an HDFS."""
from __future__ import annotations

import getpass
import json
import urllib.parse

from hadoop import Hadoop
from part import GPUS, WORKERS, NotReady
from processes import MARK
from system import HOST, ask, ask_json, find_pyspark, write_properties, write_site

DATANODES = 1


class Yarn(Hadoop):
    """A NameNode, DataNodes, a ResourceManager and NodeManagers with four cores, 4 GB and two fake GPUs each."""

    name = "yarn"
    runs_spark = True
    datanodes = [f"datanode{i + 1}" for i in range(DATANODES)]
    nodemanagers = joiners = [f"nodemanager{i + 1}" for i in range(WORKERS)]
    # Daemons that wait for others come first: they start while the NameNode's directory is formatted.
    daemons = ["resourcemanager", *nodemanagers, "namenode", *datanodes]
    ports_of = {
        "resourcemanager": ["rm", "rm_scheduler", "rm_tracker", "rm_admin", "rm_page"],
        "namenode": ["namenode", "namenode_page"],
        **{n: [n] for n in nodemanagers},
        **{d: [] for d in datanodes},
    }

    def configure(self) -> None:
        super().configure()
        self.configure_hdfs()
        self.configure_yarn()
        write_properties(self.conf / "spark-defaults.conf", {
            "spark.master": "yarn",
            "spark.executor.instances": WORKERS,
            "spark.executor.memory": "512m",
            # Spark attaches its page's handlers while YARN's master adds a filter to them: sometimes a session
            # fails with a ConcurrentModificationException. Tests of the page therefore use standalone Spark.
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.yarn.jars": f"local:{find_pyspark() / 'jars'}/*",  # else 400 MB are copied to HDFS for each session
        })

    def configure_hdfs(self) -> None:
        write_site(self.conf / "core-site.xml", {
            "fs.defaultFS": f"hdfs://{self.address('namenode')}",
            "hadoop.tmp.dir": self.folder / "tmp",
        })
        write_site(self.conf / "hdfs-site.xml", {
            "dfs.replication": 1,
            "dfs.permissions.enabled": "false",
            "dfs.namenode.safemode.extension": 0,
            "dfs.namenode.name.dir": (self.folder / "namenode").as_uri(),
            "dfs.namenode.http-address": self.address("namenode_page"),
            "dfs.datanode.data.dir": f"{self.folder.as_uri()}/${{env.DAEMON:-datanode}}",
            "dfs.datanode.address": f"{HOST}:0",
            "dfs.datanode.http.address": f"{HOST}:0",
            "dfs.datanode.ipc.address": f"{HOST}:0",
            "dfs.datanode.hostname": "localhost",
        })

    def configure_yarn(self) -> None:
        gpus = {"yarn.nodemanager.resource-type.yarn.io/gpu": GPUS}
        write_site(self.conf / "resource-types.xml", {"yarn.resource-types": "yarn.io/gpu"})
        write_site(self.conf / "node-resources.xml", gpus)
        write_site(self.conf / "capacity-scheduler.xml", {
            "yarn.scheduler.capacity.root.queues": "default",
            "yarn.scheduler.capacity.root.default.capacity": 100,
            "yarn.scheduler.capacity.maximum-am-resource-percent": 0.9,
            "yarn.scheduler.capacity.resource-calculator":
                "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator",
        })
        write_site(self.conf / "yarn-site.xml", {
            "yarn.resourcemanager.hostname": HOST,
            "yarn.resourcemanager.address": self.address("rm"),
            "yarn.resourcemanager.scheduler.address": self.address("rm_scheduler"),
            "yarn.resourcemanager.resource-tracker.address": self.address("rm_tracker"),
            "yarn.resourcemanager.admin.address": self.address("rm_admin"),
            "yarn.resourcemanager.webapp.address": self.address("rm_page"),
            "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": 200,
            "yarn.nm.liveness-monitor.expiry-interval-ms": 15000,  # a dead NodeManager is detected in 15 s, not 10 min
            "yarn.scheduler.minimum-allocation-mb": 128,
            "yarn.nodemanager.hostname": HOST,
            "yarn.nodemanager.address": f"{HOST}:${{env.NODEMANAGER_PORT:-0}}",
            "yarn.nodemanager.localizer.address": f"{HOST}:0",
            "yarn.nodemanager.webapp.address": f"{HOST}:0",
            "yarn.nodemanager.local-dirs": f"{self.folder}/${{env.DAEMON:-nodemanager}}/local",
            "yarn.nodemanager.log-dirs": f"{self.folder}/${{env.DAEMON:-nodemanager}}/log",
            "yarn.nodemanager.resource.memory-mb": 4096,
            "yarn.nodemanager.resource.cpu-vcores": 4,
            "yarn.nodemanager.pmem-check-enabled": "true",
            "yarn.nodemanager.resource.memory.enforced": "false",  # or it relies on cgroups, and checks nothing
            "yarn.nodemanager.vmem-check-enabled": "false",
            # A container's environment has only these. PATH is not whitelisted: bash sets its own.
            "yarn.nodemanager.admin-env": f"PATH={self.environment('nodemanager')['PATH']}",
            "yarn.nodemanager.env-whitelist": f"JAVA_HOME,LANG,TZ,JAVA_TOOL_OPTIONS,{MARK}",
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": 99.9,
            "yarn.resource-types": "yarn.io/gpu",
            **gpus,
        })

    def environment(self, daemon: str) -> dict[str, str]:
        port = {"NODEMANAGER_PORT": str(self.ports[daemon])} if daemon in self.nodemanagers else {}
        return {**super().environment(daemon), "DAEMON": daemon, **port}

    def prepare(self, daemon: str) -> None:
        if daemon == "namenode":
            self.format(daemon)

    def not_ready(self) -> NotReady | None:
        return self.nodes_not_ready() or self.files_not_ready()

    def nodes_not_ready(self) -> NotReady | None:
        page = ask_json(self.address("rm_page"), "/ws/v1/cluster/nodes?states=RUNNING")
        if page is None:
            return NotReady("the ResourceManager's page does not answer", "resourcemanager")
        # By port: the name before it is the system's name of our address.
        running = {int(n["id"].rpartition(":")[2]) for n in (page["nodes"] or {}).get("node", [])}
        for node in self.nodemanagers:
            if self.ports[node] not in running:
                return NotReady(f"{node} has not joined the ResourceManager", node)
        if len(running) > WORKERS:
            return NotReady("the ResourceManager still lists a dead node", "resourcemanager")
        return None

    def files_not_ready(self) -> NotReady | None:
        """Writes a file to HDFS, which needs the NameNode and a DataNode."""
        path = f"/webhdfs/v1/cluster-is-ready?user.name={urllib.parse.quote(getpass.getuser())}"
        status, body = ask("PUT", self.address("namenode_page"), f"{path}&op=CREATE&overwrite=true&noredirect=true")
        if status != 200:
            return NotReady("the NameNode refuses a file" if status else "the NameNode's page does not answer", "namenode")
        place = urllib.parse.urlsplit(json.loads(body)["Location"])
        status, _ = ask("PUT", place.netloc, f"{place.path}?{place.query}", b"ready\n")
        if status != 201:
            return NotReady("a DataNode refuses a file", self.datanodes[0])
        ask("DELETE", self.address("namenode_page"), f"{path}&op=DELETE")
        return None

    def addresses(self) -> dict[str, str]:
        return {"yarn_conf": str(self.conf), "yarn_page": f"http://{self.address('rm_page')}",
                "yarn_hdfs": f"hdfs://{self.address('namenode')}", "yarn_hdfs_page": f"http://{self.address('namenode_page')}"}

    def program_environment(self) -> dict[str, str]:
        return {"MASTER": "yarn", "HADOOP_CONF_DIR": str(self.conf), **super().program_environment()}
