# SPDX-License-Identifier: Apache-2.0
"""Ranks started by mpirun or srun: they connect on one machine, and are never silently groups of one."""
from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from conftest import BIN, Yard, wait_for
from hosts import Hosts
from test_hosts import net  # noqa: F401  (a fixture)
from test_hosts_functions import PACKAGES, python_of

SUM = """
import os
import numpy
from hopyard import collective as hvd
hvd.init()
total = hvd.allreduce(numpy.array([hvd.rank() + 1.0]), op=hvd.Sum, name="sum")[0]
os.write(1, f"rank {hvd.rank()} of {hvd.size()}, {hvd.local_rank()} of {hvd.local_size()} here, sum {total:.0f}\\n".encode())
"""

SLURM = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NNODES": "1"}
KINDS = {
    "pmi": ("PMI_RANK", {"PMI_SIZE": "3"}),
    "slurm": ("SLURM_PROCID", {"SLURM_NTASKS": "3", **SLURM}),
    "slurm without a step": ("SLURM_PROCID", {"SLURM_NTASKS": "3"}),
    "openmpi": ("OMPI_COMM_WORLD_RANK", {"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "3"}),
}


def program(yard: Yard, text: str = SUM, name: str = "train.py") -> Path:
    path = yard.project / name
    path.write_text(text)
    return path


def loop(yard: Yard, command: str, rank: str, ranks: range, env: dict[str, str]) -> subprocess.Popen[str]:
    """A shell that starts the ranks concurrently, as a launcher does, and waits for them."""
    script = f"for i in {' '.join(map(str, ranks))}; do {rank}=$i {command} & pids=\"$pids $!\"; done; s=0; for p in $pids; do wait $p || s=$?; done; exit $s"
    return subprocess.Popen(["sh", "-c", script], env={**yard.env, **env}, cwd=yard.project, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)


def outcome(p: subprocess.Popen[str], rc: int = 0) -> tuple[list[str], str]:
    out, err = p.communicate(timeout=240)
    assert p.returncode == rc, f"exit status {p.returncode}\n{out}\n{err}"
    return sorted(out.splitlines()), err


def together(count: int) -> list[str]:
    total = count * (count + 1) // 2
    return [f"rank {r} of {count}, {r} of {count} here, sum {total}" for r in range(count)]


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_of_a_launcher_connect(yard: Yard, kind: str) -> None:
    rank, env = KINDS[kind]
    p = loop(yard, f"{sys.executable} {program(yard)}", rank, range(3), env)
    assert outcome(p)[0] == together(3)
    assert not list(yard.runtime.rglob("job-*")), "no socket is left"


def mpirun(*words: object) -> list[str]:
    return ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", *map(str, words)]


def test_mpirun_starts_a_training(yard: Yard) -> None:
    """Also behind a shell, so that mpirun is not the ranks' parent."""
    path = program(yard)
    for command in ([sys.executable, path], ["sh", "-c", f"{sys.executable} {path}; exit $?"]):
        p = subprocess.Popen(mpirun("-np", 2, *command), env=yard.env, cwd=yard.project, text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
        assert outcome(p)[0] == together(2)


HOROVOD = """
import horovod.tensorflow.keras as hvd
import keras, numpy
hvd.init()
x = numpy.random.default_rng(hvd.rank()).normal(size=(64, 4)).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * hvd.size())), "mse")
model.fit(x, x.sum(1), epochs=1, batch_size=16, verbose=0, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
weights = hvd.allgather(model.get_weights()[0].reshape(1, -1))
print(f"rank {hvd.rank()} of {hvd.size()}: same weights {bool(numpy.allclose(weights[0], weights[1]))}", flush=True)
"""


def test_horovod_program_runs_unchanged_under_mpirun(yard: Yard) -> None:
    env = {**yard.env, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    p = subprocess.Popen(mpirun("-np", 2, sys.executable, program(yard, HOROVOD)), env=env, cwd=yard.project, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output = re.findall(r"rank (\d) of 2: same weights True", "\n".join(outcome(p)[0]))  # mpirun mixes the ranks' lines
    assert sorted(output) == ["0", "1"]


def test_installed_horovod_is_preferred_under_mpirun(yard: Yard) -> None:
    other = yard.project / "site/horovod"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("name = 'theirs'\n")
    env = {**yard.env, "PYTHONPATH": str(other.parent), "PMI_RANK": "0", "PMI_SIZE": "1"}
    output = subprocess.run([sys.executable, "-c", "import horovod; print(horovod.name)"], env=env, text=True, capture_output=True)
    assert output.stdout == "theirs\n", output.stderr


def test_two_concurrent_launches_do_not_mix(yard: Yard) -> None:
    path = program(yard)
    steps = [loop(yard, f"{sys.executable} {path}", "SLURM_PROCID", range(2), {"SLURM_NTASKS": "2", **SLURM, "SLURM_STEP_ID": str(i)})
             for i in range(2)]
    assert [outcome(p)[0] for p in steps] == [together(2)] * 2


def test_ranks_may_shut_down_and_init_again(yard: Yard) -> None:
    text = SUM + "hvd.shutdown()\n" + SUM.replace("from hopyard import collective as hvd", "")
    p = loop(yard, f"{sys.executable} {program(yard, text)}", "PMI_RANK", range(2), {"PMI_SIZE": "2"})
    assert outcome(p)[0] == sorted(together(2) * 2)


def test_dead_rank_is_reported_to_the_others(yard: Yard) -> None:
    text = SUM + "import os, signal\nif hvd.rank() == 1: os.kill(os.getpid(), signal.SIGKILL)\nhvd.barrier()\n"
    p = loop(yard, f"{sys.executable} {program(yard, text)}", "PMI_RANK", range(3), {"PMI_SIZE": "3"})
    output = p.communicate(timeout=120)[1]
    assert output.count("rank 1 has ended while the others were still training") >= 2, output
    assert p.returncode


def test_death_of_rank_0_is_reported(yard: Yard) -> None:
    text = SUM + "import os, signal\nif hvd.rank() == 0: os.kill(os.getpid(), signal.SIGKILL)\nhvd.barrier()\n"
    p = loop(yard, f"{sys.executable} {program(yard, text)}", "PMI_RANK", range(2), {"PMI_SIZE": "2"})
    assert "rank 0 is gone, and the training with it" in p.communicate(timeout=120)[1]
    assert p.returncode
    assert "job-" in yard.run("gc", "--all").stdout, "the socket, which the next rank 0 would also remove"


def test_missing_ranks_are_reported(yard: Yard) -> None:
    path = program(yard)
    for rank, word in ((0, r"\[hopyard\] waiting for 1 of 2 ranks, which have not called init for \d s: 1\n"),
                       (1, r"\[hopyard\] rank 1 waits for rank 0, which has not called init yet\n")):
        p = subprocess.Popen([sys.executable, path], env={**yard.env, "PMI_RANK": str(rank), "PMI_SIZE": "2"}, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                             preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
        assert p.stderr and re.fullmatch(word, p.stderr.readline())
        os.kill(p.pid, signal.SIGINT)
        assert "KeyboardInterrupt" in p.communicate(timeout=60)[1]
    assert "job-" in yard.run("gc", "--all").stdout, "left by rank 0, which was killed by a signal"


SHORT = """
import os, threading, time

def until(holds):
    while not holds():
        time.sleep(0.01)

def fill():
    place = os.environ["XDG_RUNTIME_DIR"] + "/hopyard/job-"
    until(lambda: open("/proc/net/unix").read().count(place) >= 2)  # the listener, and the connection of rank 0 itself
    kept = []
    try:
        while True:
            kept.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        os.close(kept.pop())
        kept.append(os.open("full", os.O_CREAT | os.O_WRONLY))  # it uses the last descriptor
    until(lambda: os.access("dialed", os.F_OK))
    began = time.process_time()
    time.sleep(1)
    used = time.process_time() - began
    for fd in kept:
        os.close(fd)
    os.write(1, f"spins {used > 0.5}\\n".encode())

if os.environ["PMI_RANK"] == "0":
    threading.Thread(target=fill).start()
else:
    until(lambda: os.path.exists("full"))
    threading.Timer(0.5, lambda: open("dialed", "w").close()).start()
"""


def test_rank_0_without_free_descriptors_pauses_and_continues(yard: Yard) -> None:
    """Its thread does not spin on a connection that it cannot accept."""
    text = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))\nimport numpy\nfrom hopyard import collective\n" + SHORT + SUM
    p = loop(yard, f"{sys.executable} {program(yard, text)}", "PMI_RANK", range(2), {"PMI_SIZE": "2"})
    assert outcome(p)[0] == [*together(2), "spins False"]


@pytest.mark.parametrize("env, command", [
    ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, "horovodrun -np 4 -H HOST1:2,HOST2:2 python"),
    ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_NNODES": "2"}, "horovodrun -np 4 -H \"$(scontrol show hostnames")])
def test_ranks_on_several_machines_are_refused_with_the_command(yard: Yard, env: dict[str, str], command: str) -> None:
    p = subprocess.run([sys.executable, program(yard)], env={**yard.env, **env}, text=True, capture_output=True, timeout=60)
    assert p.returncode and "on several machines" in p.stderr and command in p.stderr, p.stderr


def test_trials_and_ranks_of_a_run_under_slurm_are_not_tasks_of_slurm(yard: Yard) -> None:
    """`hopyard run` in a batch script: its trials inherit Slurm's variables, but are not Slurm's tasks."""
    path = program(yard)
    env = {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}
    yard.run("run", "--", sys.executable, path, env=env)
    out = next(yard.logdir().rglob("stdout")).read_text()
    assert out == "rank 0 of 1, 0 of 1 here, sum 1\n"
    p = yard.run("train", "-np", 2, sys.executable, path, env=env)
    assert sorted(line[4:] for line in p.stdout.splitlines()) == together(2)


def test_child_of_a_rank_is_not_a_rank(yard: Yard) -> None:
    text = SUM + f"import subprocess, sys\nif hvd.rank() == 0:\n    p = subprocess.run([sys.executable, '-c', {SUM!r}], text=True, capture_output=True)\n    print(p.stderr.splitlines()[-1], flush=True)\nhvd.barrier()\n"
    p = loop(yard, f"{sys.executable} {program(yard, text)}", "PMI_RANK", range(2), {"PMI_SIZE": "2"})
    out = outcome(p)[0]
    assert any("another process of this rank is in the group already" in line for line in out), out
    wait_for(lambda: not yard.processes(), "all processes exit")


# ---- several machines ---------------------------------------------------------------------------------------------


def spread(yard: Yard, hosts: Hosts, text: str = SUM, ranks: str = "a:2,b:2", quiet: bool = False) -> subprocess.Popen[str]:
    """mpirun on this machine, its ranks on the hosts, which have neither the project nor the program.

    quiet: through a shell that hides a rank's exit status; otherwise mpirun would kill the others at once.
    """
    count = sum(int(word.rpartition(":")[2]) for word in ranks.split(","))
    command = mpirun("--mca", "plm_rsh_agent", hosts.path / "ssh", "--mca", "oob_tcp_if_include", f"{hosts.prefix}.0/24",
                     "--host", ranks, "-np", count, "-x", f"PYTHONPATH={PACKAGES}",
                     *(["sh", "-c", '"$0" "$@"; true'] if quiet else []), python_of(hosts), "-c", text)
    return subprocess.Popen(command, env=yard.env, cwd="/", text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)


def test_ranks_of_mpirun_on_several_machines_connect(yard: Yard, net: Hosts) -> None:  # noqa: F811
    """With the address and the key from PMIx; ranks of one machine share memory."""
    text = SUM + """
big = hvd.allreduce(numpy.full(1_000_000, hvd.rank(), "float32"), op=hvd.Sum, name="big")
hvd.shutdown()
hvd.init()
again = hvd.allgather(numpy.array([hvd.rank()]), name="again").tolist()
os.write(1, f"big {big.min():.0f} {big.max():.0f}, again {again}\\n".encode())
"""
    out = outcome(spread(yard, net, text))[0]
    assert out == ["big 6 6, again [0, 1, 2, 3]"] * 4 + [f"rank {r} of 4, {r % 2} of 2 here, sum 10" for r in range(4)]


PMI2 = {"PMI_SIZE": "3", "MPI_LOCALNRANKS": "1", "PMI_FD": "9"}  # as if each rank had its own machine


def test_pmi_2_provides_the_address_without_pmix(yard: Yard, tmp_path: Path) -> None:
    """With a fake of its library; here all ranks are on one machine."""
    library = Path(BIN).absolute().parents[2] / "tests" / "fakes"
    assert (library / "libpmi2.so.0").exists(), f"build the tests: no libpmi2.so.0 in {library}"
    env = {**PMI2, "LD_LIBRARY_PATH": str(library), "FAKE_PMI2": str(tmp_path)}
    p = loop(yard, f"{sys.executable} {program(yard)}", "PMI_RANK", range(3), env)
    assert outcome(p)[0] == together(3)


def test_launcher_without_a_loadable_library_is_refused_with_the_command(yard: Yard, tmp_path: Path) -> None:
    (tmp_path / "libpmi2.so.0").write_text("not a library")
    p = subprocess.run([sys.executable, program(yard)], env={**yard.env, **PMI2, "PMI_RANK": "1", "LD_LIBRARY_PATH": str(tmp_path)},
                       text=True, capture_output=True, timeout=60)
    assert p.returncode and "libpmi2.so.0: " in p.stderr and "horovodrun -np 3 -H HOST1:1,HOST2:1 python" in p.stderr, p.stderr


def test_rank_waiting_for_the_launcher_can_be_interrupted(yard: Yard, tmp_path: Path) -> None:
    library = Path(BIN).absolute().parents[2] / "tests" / "fakes"
    env = {**yard.env, **PMI2, "PMI_RANK": "1", "LD_LIBRARY_PATH": str(library), "FAKE_PMI2": str(tmp_path)}
    p = subprocess.Popen([sys.executable, program(yard)], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    wait_for(lambda: (tmp_path / "fence-1").exists(), "the rank waits in the fence")
    assert p.stderr and p.stderr.readline() == "[hopyard] rank 1 waits until all 3 ranks have called init\n"
    os.kill(p.pid, signal.SIGINT)
    assert "KeyboardInterrupt" in p.communicate(timeout=60)[1]


@pytest.mark.parametrize("rank, word", [(3, "rank 3 on b has ended, or its machine cannot be reached, while the others"),
                                        (0, "rank 0 is gone, and the training with it")])
def test_dead_rank_on_another_machine_is_reported(yard: Yard, net: Hosts, rank: int, word: str) -> None:  # noqa: F811
    text = "try:" + textwrap.indent(SUM + f"""
import signal
if hvd.rank() == {rank}:
    os.kill(os.getpid(), signal.SIGKILL)
hvd.barrier()
""", "    ") + """
except Exception as error:  # in the barrier, or in the sum: the dying rank may get the result first
    os.write(1, f"rank {hvd.rank()}: {error}\\n".encode())
"""
    p = spread(yard, net, text, quiet=True)
    out = "\n".join(outcome(p)[0])
    assert out.count(word) == 3, out


def test_partitioned_machine_is_reported(yard: Yard, net: Hosts) -> None:  # noqa: F811
    text = SUM + """
os.write(1, b"all here\\n")
try:
    hvd.barrier() if hvd.rank() != 1 else __import__("time").sleep(600)
except Exception as error:
    os.write(1, f"rank {hvd.rank()}: {error}\\n".encode())
"""
    p = spread(yard, net, text, "a:1,b:1", quiet=True)
    assert p.stdout
    here = 0
    while here < 2:
        here += p.stdout.readline() == "all here\n"
    net["b"].cut()
    assert "rank 1 on b has ended, or its machine cannot be reached" in p.stdout.readline()
    net["b"].repair()
    p.terminate()
    p.communicate(timeout=60)


def test_foreign_connections_do_not_disturb_ranks_of_several_machines(yard: Yard, net: Hosts) -> None:  # noqa: F811
    """Connections without the key, more than the server accepts, before the ranks connect and during the training."""
    text = f"""
import os, socket, threading
if os.environ["OMPI_COMM_WORLD_RANK"] == "0":
    def flood():
        import time
        kept = []
        while True:
            for line in open("/proc/net/tcp6").readlines()[1:] + open("/proc/net/tcp").readlines()[1:]:
                words = line.split()
                if words[3] == "0A" and words[7] == str(os.getuid()):
                    other = socket.socket()
                    other.setblocking(False)
                    try:
                        other.connect(("127.0.0.1", int(words[1].rpartition(":")[2], 16)))
                    except OSError:
                        pass
                    kept.append(other)
                    try:
                        other.send(b"hymesh1\\0" + bytes(48))
                    except OSError:
                        pass
            del kept[:-200]
            time.sleep(0.002)
    threading.Thread(target=flood, daemon=True).start()
    import time
    time.sleep(1)
{SUM}
for i in range(20):
    hvd.barrier()
"""
    out = outcome(spread(yard, net, text))[0]
    assert out == [f"rank {r} of 4, {r % 2} of 2 here, sum 10" for r in range(4)]
