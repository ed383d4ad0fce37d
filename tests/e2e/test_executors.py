# SPDX-License-Identifier: Apache-2.0
"""Executors in various environments: noexec directories, another Python, an older glibc, a packed environment.
Compatible ones run trials; for others the message names the executor."""
from __future__ import annotations

import json
import os
import platform
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import BIN
from house import House, houses
from needs import need_root

HERE = re.escape(platform.node())


def house_of(cluster: dict[str, Any], folder: Path, python: str, **settings: str) -> Iterator[House]:
    """One whose executors use this Python."""
    env = {**cluster["spark_env"], "PYSPARK_PYTHON": python}
    yield from houses({**cluster, "spark_env": env}, "spark", folder, **settings)


# ---- noexec directories --------------------------------------------------------------------------------------


@contextmanager
def noexec(worker: int, folder: Path) -> Iterator[None]:
    """Mounts an empty directory there, for that process and its children."""
    inside = ["nsenter", "--target", str(worker), "--mount"]
    subprocess.run([*inside, "mount", "-t", "tmpfs", "-o", "noexec", "hopyard-test", folder], check=True)
    try:
        yield
    finally:
        subprocess.run([*inside, "umount", "--lazy", folder], check=True)


@pytest.fixture
def noexec_house(spark_cluster: dict[str, Any], tmp_path: Path) -> Iterator[House]:
    need_root("to mount a file system")
    home = spark_cluster["state"] / "spark"
    daemons = json.loads((home / "daemons.json").read_text())["daemons"]
    with ExitStack() as mounts:
        for worker in ("worker1", "worker2"):
            mounts.enter_context(noexec(daemons[worker][0], home / worker))
        yield from houses(spark_cluster, "spark", tmp_path)


def test_everything_runs_from_memory_if_all_directories_are_noexec(noexec_house: House) -> None:
    """Also for a second agent, which finds the links of the first."""
    output = noexec_house.notebook.evaluate("""
        def training(base):
            import hopyard.collective as hvd, numpy
            from hopyard import _hopyard
            hvd.init()
            total = hvd.allreduce(numpy.array([base + hvd.rank()], dtype="float64"), op=hvd.Sum)
            with open("/proc/self/maps") as maps:
                extension = [line.split()[5] for line in maps if "_hopyard.abi3" in line][0]
            with os.popen("hopyard --version") as version:  # the program that commands report with
                output = version.read()
            return float(total[0]), extension, bool(os.statvfs(hopyard.__file__).f_flag & os.ST_NOEXEC), output

        emit(ranks=allreduce.run(training, (1,), np=2, spark=spark, tensorboard=False))
        result = experiment.grid_search(lambda x: x, {"x": [1, 2]}, spark=spark, tensorboard=False)
        emit(states=[t.state for t in result.trials])
    """)
    for total, extension, is_noexec, version in output["ranks"]:
        assert total == 3.0 and is_noexec and version.startswith("hopyard ")
        assert extension == "/memfd:_hopyard.abi3.so"
    assert output["states"] == ["done", "done"]


# ---- another Python ------------------------------------------------------------------------------------------


def another_python(folder: Path) -> str:
    """Ours, with another version number."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", folder], check=True)
    [libraries] = folder.glob("lib/python3*/site-packages")
    (libraries / "usercustomize.py").write_text(  # Debian's Python has a sitecustomize already
        "import collections, sys\n"
        "Version = collections.namedtuple('Version', 'major minor micro releaselevel serial')\n"
        f"sys.version_info = Version(3, {sys.version_info[1] - 1}, 0, 'final', 0)\n"
    )
    return str(folder / "bin/python")


@pytest.mark.parametrize("which", [pytest.param("other", marks=pytest.mark.full), "old"])
def test_incompatible_python_is_reported_with_the_executor(spark_cluster: dict[str, Any], tmp_path: Path,
                                                           which: str) -> None:
    """Of another version, which Spark refuses; or Debian's PyPy, for which Spark's own modules may be too new."""
    python = another_python(tmp_path / "other") if which == "other" else "/usr/bin/pypy3"
    for house in house_of(spark_cluster, tmp_path, python):
        output = house.notebook.evaluate("""
            emit(error=failing(lambda: experiment.grid_search(lambda x: x, {"x": [1]}, spark=spark, tensorboard=False)))
        """)
        ours = f"3.{sys.version_info[1]}"
        why = f"is 3.{sys.version_info[1] - 1}, but this session's is {ours}"
        if which == "old":
            why = r"(cannot start Spark's worker: \w+: .+|is 3\.\d+, but this session's is \S+)"
        assert re.search(rf"executor \d+ on \S+: its Python {why}; set PYSPARK_PYTHON to a Python {re.escape(ours)} ",
                         output["error"]), output["error"]


# ---- packed environments -------------------------------------------------------------------------------------


def packed(folder: Path, packer: str) -> Path:
    """An environment with a module that is not installed elsewhere."""
    environment, archive = folder / "environment", folder / "environment.tar.gz"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    [libraries] = environment.glob("lib/python3*/site-packages")
    (libraries / "only_there.py").write_text("import sys\nWORD = 'from ' + sys.prefix\n")
    if packer == "conda-pack":  # these two identify a conda environment, whose files conda lists or not
        (environment / "conda-meta").mkdir()
        (environment / "conda-meta/history").touch()
    subprocess.run([Path(sys.executable).with_name(packer), "--prefix", environment, "--output", archive], check=True)
    return archive


@pytest.mark.parametrize("packer", ["venv-pack", pytest.param("conda-pack", marks=pytest.mark.full)])
def test_packed_environment_is_used(spark_cluster: dict[str, Any], tmp_path: Path, packer: str) -> None:
    """It has no hopyard, and trials use its modules."""
    archive = packed(tmp_path, packer)
    for house in house_of(spark_cluster, tmp_path, "./environment/bin/python", archives=f"{archive}#environment"):
        output = house.notebook.evaluate("""
            def training(x):
                import only_there
                hopyard.report(step=1, m=x)
                return {"m": x, "word": only_there.WORD, "hopyard": hopyard.__file__}

            result = experiment.grid_search(training, {"x": [1, 2]}, metric="m", spark=spark, tensorboard=False)
            emit(states=[t.state for t in result.trials], errors=[t.error for t in result.trials],
                output=json.loads(Path(result.trials[0].logdir, "result.json").read_text()))
        """)
        assert output["states"] == ["done", "done"], output["errors"]
        assert re.fullmatch("from /.*/environment", output["output"]["word"]) and "/.hopyard-" in output["output"]["hopyard"], output


# ---- incompatible executors ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def house(spark_cluster: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """Two executors, a driver that is reachable from other machines, and all that Spark logs or shows."""
    folder = tmp_path_factory.mktemp("house")
    events = tmp_path_factory.mktemp("events")
    settings = {"driver_host": own_address(), "eventLog_enabled": "true", "eventLog_dir": events.as_uri(),
                "eventLog_compress": "false"}
    for house in houses(spark_cluster, "spark", folder, **settings):
        house.notebook.evaluate("""
            def quick():
                experiment.grid_search(lambda x: x, {"x": [1]}, spark=spark, tensorboard=False)
        """)
        yield house


def own_address() -> str:
    """An address that other machines can reach, if there is one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no other address")
        return str(s.getsockname()[0])


def newer_glibc(program: Path, folder: Path) -> Path:
    """The same program, as if built on a system with a future glibc."""
    made, data = folder / "hopyard", program.read_bytes()
    newest = max(re.findall(rb"\0GLIBC_2\.\d\d\0", data))
    made.write_bytes(data.replace(newest, b"\0GLIBC_2.99\0"))
    made.chmod(0o755)
    return made


def test_old_glibc_is_reported_with_the_executor(house: House, tmp_path: Path) -> None:
    made = newer_glibc(Path(BIN), tmp_path)
    output = house.notebook.evaluate(f"""
        from hopyard._spark import package_archive as _package_archive
        here = os.environ["HOPYARD_PROGRAM"]
        _package_archive.archive.cache_clear()
        os.environ["HOPYARD_PROGRAM"] = {str(made)!r}
        _package_archive.archive()
        os.environ["HOPYARD_PROGRAM"] = here
        emit(error=failing(quick))
        _package_archive.archive.cache_clear()
    """)
    version = re.escape(platform.libc_ver()[1])
    assert re.search(rf"executor \d+ on {HERE}: its glibc is {version}, but hopyard's program needs 2\.99; ", output["error"])


def test_missing_module_is_reported_with_the_executor(house: House) -> None:
    output = house.notebook.evaluate("""
        os.mkdir("elsewhere")
        Path("elsewhere", "mymodel.py").write_text("def training(x):\\n    return x\\n")
        sys.path.insert(0, "elsewhere")
        import mymodel
        sys.path.remove("elsewhere")  # trials search it, too
        emit(error=failing(lambda: experiment.grid_search(mymodel.training, {"x": [1]}, spark=spark, tensorboard=False)))
        listed = sc._jsc.sc().statusStore().executorList(True)
        emit(executors=[listed.apply(i).id() for i in range(listed.size())])
    """)
    where = re.search(rf"on executor (\d+), {HERE}\?", output["error"])
    assert "cannot import 'mymodel'" in output["error"] and where and where[1] in output["executors"], output


# ---- secrecy of the key --------------------------------------------------------------------------------------


def listening(pid: int) -> set[str]:
    """Addresses on which a process accepts TCP connections."""
    sockets = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            sockets.add(os.readlink(link))
    found = set()
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path("/proc/net", name).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                packed = bytes.fromhex(words[1].partition(":")[0])
                words4 = [packed[i:i + 4][::-1] for i in range(0, len(packed), 4)]
                found.add(socket.inet_ntop(family, b"".join(words4)))
    return found


def fetched(page: str, app: str) -> bytes:
    """What Spark shows of an application, as pages and in its REST API."""
    api = f"api/v1/applications/{app}"
    stages = json.loads(urllib.request.urlopen(f"{page}/{api}/stages", timeout=60).read())
    paths = [*(f"{name}/" for name in ("jobs", "stages", "storage", "environment", "executors")),
             *(f"{api}/{name}" for name in ("jobs", "stages", "environment", "executors")),
             *(f"stages/stage/?id={s['stageId']}&attempt=0" for s in stages), *(f"{api}/stages/{s['stageId']}" for s in stages)]
    return b"".join(urllib.request.urlopen(f"{page}/{path}", timeout=60).read() for path in paths)


def shown_by_processes() -> Iterator[tuple[str, bytes]]:
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            with suppress(OSError):
                yield f"{process}/{name}", (process / name).read_bytes()


def written_below(*folders: Path) -> Iterator[tuple[str, bytes]]:
    for path in (path for folder in folders for path in folder.rglob("*")):
        with suppress(FileNotFoundError):
            if path.is_file():
                yield str(path), path.read_bytes()


def test_key_is_not_exposed_and_the_driver_listens_on_a_reachable_address(
        house: House, spark_cluster: dict[str, Any]) -> None:
    gate = house.yard.project / "gate"
    output = house.notebook.evaluate(f"""
        from hopyard._spark import supplier as _spark
        keys, start = [], _spark.Supplier._start
        def noting(self, order):
            keys.append(order["key"])
            start(self, order)
        _spark.Supplier._start = noting
        start_gated_run({str(gate)!r})
        emit(port=sc.uiWebUrl.rpartition(":")[2], app=sc.applicationId, events=sc.getConf().get("spark.eventLog.dir"))
    """)
    house.wait_for_gated_run(output["run"])
    keys = [text for key in house.notebook.evaluate("emit(keys=keys)")["keys"] for text in (key.encode(), bytes.fromhex(key))]
    assert len(keys) == 4 and all(len(key) in (32, 64) for key in keys)
    assert listening(house.yard.process("driver")) == {own_address()}
    page = f"http://{house.env['SPARK_LOCAL_IP']}:{output['port']}"
    seen = [*shown_by_processes(), ("Spark's page", fetched(page, output["app"]))]
    gate.touch()
    house.notebook.evaluate(f"experiment.attach({output['run']})")
    folders = [house.yard.project, house.yard.runtime, spark_cluster["state"], Path(output["events"].removeprefix("file:"))]
    seen += written_below(*folders)
    assert any(b"SparkListenerTaskEnd" in text for _, text in seen), "Spark has written its events"
    assert any("/.hopyard-" in name for name, _ in seen), "executors have their directories there"
    for where, text in seen:
        assert not [key for key in keys if key in text], where


def test_unencrypted_channel_causes_one_warning(house: House) -> None:
    house.notebook.evaluate("quick()")
    assert house.notebook.shown.count("Spark's channel to its executors is not authenticated and encrypted") == 1


def test_encrypted_channel_causes_no_warning(yarn_cluster: dict[str, Any], tmp_path: Path) -> None:
    settings = {"driver_host": own_address(), "authenticate": "true", "network_crypto_enabled": "true", "executor_instances": "1"}
    for house in houses(yarn_cluster, "yarn", tmp_path, **settings):
        output = house.notebook.evaluate("""
            result = experiment.grid_search(lambda x: x, {"x": [1, 2]}, spark=spark, tensorboard=False)
            emit(states=[t.state for t in result.trials])
        """)
        assert output["states"] == ["done", "done"] and "Spark's channel" not in house.notebook.shown
