# SPDX-License-Identifier: Apache-2.0
"""What a trial costs, and what hopyard holds on to; its peers beside it.

    .venv/bin/python bench/core.py            (make bench-core; some ten minutes)
    .venv/bin/python bench/core.py --quick    a tenth of the trials, to see that it works

CPU time is that of *all* processes: this one is a subreaper, so everything a
runner started ends as its child, daemons too, and is counted when it is
reaped. Peers run in the same minutes on the same machine; trust the ratios.
Optuna is installed into an environment of its own below build/.
"""

import argparse
import contextlib
import ctypes
import errno
import os
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field

from report import ROOT, Figure, machine, results, save

HOPYARD = os.environ.get("HOPYARD_BIN", os.path.join(ROOT, ".venv", "bin", "hopyard"))
WORK = os.path.join(ROOT, "build", "bench")
RESULTS = results("core")
ROUNDS = 3
LINGER_S = 60  # how long what a runner left behind may take to end
GLIBC = re.compile(r"(linux-vdso|ld-linux[-\w]*|lib(c|m|pthread|dl|rt|resolv|util))\.so\.\d+$")

# Each trial runs the same program as everybody else's; the sampler is the cheapest there is.
OPTUNA_WORKER = """
import subprocess, sys, optuna
optuna.logging.set_verbosity(optuna.logging.ERROR)
storage, trials = sys.argv[1], int(sys.argv[2])
study = optuna.create_study(study_name="bench", storage=storage, load_if_exists=True,
                            sampler=optuna.samplers.RandomSampler())
def objective(trial):
    trial.suggest_int("i", 1, 2000)
    return subprocess.run(["true"]).returncode
study.optimize(objective, n_trials=trials)
"""


@dataclass
class Cost:
    cpu_ms: float  # per trial, of all processes
    per_second: float


@dataclass
class Report:
    trials: int
    costs: dict[str, Cost] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


# --- processes -----------------------------------------------------------


def become_subreaper() -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0) != 0:  # PR_SET_CHILD_SUBREAPER
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def descendants() -> list[int]:
    """Everything below this process, the nearest first."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as stat:
                parent = int(stat.read().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    found = [os.getpid()]
    for pid in found:
        found += children.get(pid, [])
    return found[1:]


def reap_all() -> list[int]:
    """Waits until no descendant is left; gives those that had to be killed."""
    deadline, killed = time.monotonic() + LINGER_S, []
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return killed
        if time.monotonic() > deadline:
            killed += [pid for pid in descendants() if pid not in killed]
            for pid in killed:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(report: Report, name: str, trials: int, command: list[str] | str, **kwargs) -> Cost:
    """Runs one runner to its end. Seconds count until it returns, CPU until its last process is gone."""
    log_path = os.path.join(WORK, "output.txt")
    before, started = children_cpu_s(), time.monotonic()
    with open(log_path, "wb") as log:
        runner = subprocess.Popen(command, shell=isinstance(command, str), stdin=subprocess.DEVNULL,
                                  stdout=log, stderr=log, **kwargs)
        status = runner.wait()
    seconds = time.monotonic() - started
    if status:
        with open(log_path, errors="replace") as log:
            sys.exit(f"{name} ended with status {status}:\n{log.read()[-3000:]}")
    if killed := reap_all():
        report.notes.append(f"{name}: {len(killed)} processes were left after {LINGER_S} s")
    return Cost((children_cpu_s() - before) * 1000 / trials, trials / seconds)


def resident_mb(role: str) -> float:
    """Of the largest `hopyard ROLE` (its reaper, which has the same name, is smaller)."""
    sizes = [0.0]
    for pid in descendants():
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/cmdline", "rb") as cmdline:
                words = cmdline.read().split(b"\0")
            with open(f"/proc/{pid}/status") as status:
                rss = re.search(r"^VmRSS:\s+(\d+) kB", status.read(), re.M)
            if rss and len(words) > 1 and words[1] == role.encode():
                sizes.append(int(rss[1]) / 1024)
    return max(sizes)


# --- a trivial trial -----------------------------------------------------


def project(name: str) -> dict[str, str]:
    """A fresh project folder; gives the environment that names it."""
    folder = os.path.join(WORK, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    return {**os.environ, "HOPYARD_PROJECT": folder, "HOME": folder}


def run_hopyard(report: Report, n: int) -> Cost:
    command = [HOPYARD, "run", "--grid", f"i=1..{n}", "--parallel", "2", "--", "true"]
    return measure(report, "hopyard", n, command, env=project("trivial"), cwd=WORK)


def run_xargs(report: Report, n: int) -> Cost:
    return measure(report, "xargs", n, f"seq {n} | xargs -P 2 -n 1 true")


def run_parallel(report: Report, n: int) -> Cost:
    return measure(report, "GNU parallel", n, f"seq {n} | parallel --will-cite -j 2 true", env=project("parallel"))


def run_optuna(report: Report, n: int) -> Cost:
    python = os.path.join(WORK, "optuna", "bin", "python")
    if not os.path.exists(os.path.join(WORK, "optuna", "installed")):
        print("installing Optuna below build/ …", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", os.path.join(WORK, "optuna")], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "optuna"], check=True)
        open(os.path.join(WORK, "optuna", "installed"), "w").close()
    env = project("optuna-study")
    storage = f"sqlite:///{env['HOPYARD_PROJECT']}/study.db"
    subprocess.run([python, "-c", OPTUNA_WORKER, storage, "0"], check=True, env=env)  # the tables, not measured
    worker = f"'{python}' -c '{OPTUNA_WORKER}' '{storage}' {n // 2}"
    return measure(report, "Optuna", n, f"{worker} & other=$!; {worker} && wait $other", env=env)


RUNNERS: dict[str, tuple[Callable[[Report, int], Cost], int]] = {
    "hopyard, durable": (run_hopyard, ROUNDS),
    "xargs -P2": (run_xargs, ROUNDS),
    "GNU parallel -j2": (run_parallel, ROUNDS),
    "Optuna, SQLite, 2 processes": (run_optuna, 1),
}


def bench_trivial(report: Report, only: list[str]) -> None:
    chosen = [name for name in RUNNERS if not only or name.split()[0].strip(",") in only]
    rounds: dict[str, list[Cost]] = {name: [] for name in chosen}
    for i in range(ROUNDS):
        for name in rounds:
            run, wanted = RUNNERS[name]
            if i < wanted:
                cost = run(report, report.trials)
                rounds[name].append(cost)
                print(f"  {name}: {cost.cpu_ms:.2f} ms of CPU, {cost.per_second:.0f} trials/s", flush=True)
    for name, costs in rounds.items():
        report.costs[name] = Cost(statistics.median(c.cpu_ms for c in costs),
                                  statistics.median(c.per_second for c in costs))
    own, peer = report.costs.get("hopyard, durable"), report.costs.get("GNU parallel -j2")
    if own:
        report.figures.append(Figure("CPU per trial, all processes", own.cpu_ms, "ms", 2))
    if own and peer:
        report.figures.append(Figure("trials per second, as a multiple of GNU parallel",
                                     own.per_second / peer.per_second, "×", 1, less=False))


# --- what it holds on to ---------------------------------------------------


@contextlib.contextmanager
def held_at(gate: str, runner: subprocess.Popen) -> Iterator[None]:
    """While inside, the trial that reads from the gate waits: all before it have ended."""
    while True:
        try:
            fd = os.open(gate, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # succeeds once there is a reader
            break
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
        if runner.poll() is not None:
            sys.exit(f"hopyard ended with status {runner.returncode} before its trials had; see {WORK}/output.txt")
        time.sleep(0.05)
    try:
        time.sleep(1)  # the one that ran beside it ends
        yield
    finally:
        os.close(fd)


def seconds_until(what: str, env: dict[str, str], command: list[str]) -> float:
    """Until the command has ended, or has written its first byte."""
    started = time.monotonic()
    client = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert client.stdout
    first = client.stdout.read() if what == "end" else client.stdout.read1(1)
    seconds = time.monotonic() - started
    client.kill()
    client.wait()
    return seconds if first else float("inf")


def bench_resident(report: Report, few: int, many: int) -> None:
    env = project("resident")
    gates = {n: os.path.join(env["HOPYARD_PROJECT"], f"gate.{n}") for n in (few, many)}
    for path in gates.values():
        os.mkfifo(path)
    script = "; ".join(f'[ "$1" != {n} ] || cat "{path}"' for n, path in gates.items())
    command = [HOPYARD, "run", "--grid", f"i=1..{many}", "--parallel", "2", "--", "sh", "-c", script, "sh", "{i}"]
    started = time.monotonic()
    with open(os.path.join(WORK, "output.txt"), "wb") as log:
        runner = subprocess.Popen(command, env=env, cwd=WORK, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    with held_at(gates[few], runner):
        agent = resident_mb("agent")
        print(f"  after {few:,} trials: agent {agent:.1f} MB", flush=True)
    with held_at(gates[many], runner):
        driver = resident_mb("driver")
        show = seconds_until("end", env, [HOPYARD, "show", "1"])
        attach = seconds_until("first", env, [HOPYARD, "attach", "1"])
        print(f"  after {many:,} trials ({time.monotonic() - started:.0f} s): driver {driver:.1f} MB, "
              f"agent {resident_mb('agent'):.1f} MB", flush=True)
    if runner.wait():
        sys.exit(f"hopyard ended with status {runner.returncode}; see {WORK}/output.txt")
    if killed := reap_all():
        report.notes.append(f"{len(killed)} processes of hopyard were left after {LINGER_S} s")
    if not agent or not driver:
        report.notes.append("found no `hopyard agent` or no `hopyard driver` among the processes")
        agent, driver = agent or float("inf"), driver or float("inf")
    report.figures += [
        Figure(f"agent, resident after {few:,} trials", agent, "MB", 10),
        Figure(f"driver, resident with {many:,} trials", driver, "MB", 30),
        Figure(f"`hopyard show` of {many:,} trials, whole", show, "s", 1),
        Figure(f"`hopyard attach` of {many:,} trials, first byte", attach, "s", 1),
    ]


def bench_binary(report: Report) -> None:
    libraries = re.findall(r"^\s*(?:\S*/)?(\S+)", subprocess.run(["ldd", HOPYARD], check=True, text=True,
                                                               stdout=subprocess.PIPE).stdout, re.M)
    strangers = [name for name in libraries if not GLIBC.match(name)]
    report.figures.append(Figure("the program's size", os.path.getsize(HOPYARD) / 2**20, "MB", 8))
    report.figures.append(Figure("libraries it asks for beside glibc's", len(strangers), "", 0))
    if strangers:
        report.notes.append("libraries beside glibc's: " + " ".join(strangers))


# --- the report ------------------------------------------------------------


def show(report: Report) -> None:
    if report.costs:
        own = report.costs.get("hopyard, durable")
        title = f"{report.trials:,} trials of `true`, two at a time"
        print(f"\n{title:<45} {'CPU ms/trial':>11} {'trials/s':>10} {'CPU, hopyard = 1':>18}")
        for name, cost in report.costs.items():
            ratio = f"{cost.cpu_ms / own.cpu_ms:.2f}" if own else "-"
            print(f"  {name:<43} {cost.cpu_ms:>11.2f} {cost.per_second:>10.0f} {ratio:>18}")
    print(f"\n  {'figure':<48} {'measured':>9} {'':<4} {'target':>12}")
    for figure in report.figures:
        print(figure.row())
    for note in report.notes:
        print(f"  note: {note}")
    print(f"  {machine()}; all of it is in {os.path.relpath(RESULTS)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the trials")
    parser.add_argument("--only", nargs="*", default=[], metavar="PART",
                        help="hopyard, xargs, GNU, Optuna, resident, binary")
    options = parser.parse_args()
    scale = 10 if options.quick else 1
    report = Report(trials=2000 // scale)
    os.makedirs(WORK, exist_ok=True)
    become_subreaper()
    runners = [part for part in options.only if part not in ("resident", "binary")]
    if runners or not options.only:
        bench_trivial(report, runners)
    if not options.only or "resident" in options.only:
        bench_resident(report, 10_000 // scale, 100_000 // scale)
    if not options.only or "binary" in options.only:
        bench_binary(report)
    show(report)
    save(RESULTS, report.figures, trials=report.trials, notes=report.notes,
         costs={name: asdict(cost) for name, cost in report.costs.items()})
    return 0 if all(f.met for f in report.figures) else 1


if __name__ == "__main__":
    sys.exit(main())
