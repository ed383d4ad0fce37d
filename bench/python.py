# SPDX-License-Identifier: Apache-2.0
"""What a Python function costs as a trial; a fresh interpreter and Ray Tune beside it.

    .venv/bin/python bench/python.py            (make bench-python; some ten minutes)
    .venv/bin/python bench/python.py --quick    one round with a quarter of the trials, to see that it works

The function runs one TensorFlow op; two trials at a time. The rate that counts is that of the whole
call: hopyard's has the start of the run and the import of TensorFlow in it, Ray's the import too but
not the start of Ray (ray.init), which comes before the clock. The steady rate is what more trials
cost: a call with two trials is taken off, and the import with it. Where each trial imports TensorFlow
again, fewer of them tell the same, and the table says how many there were.

CPU time is that of all of a runner's processes, by a cgroup: Ray does not wait for its workers, so
nobody else knows what they used. Exit status 0 also where a figure is missed: this is no test.
Ray is installed into an environment of its own below build/, on top of ours: it brings pyarrow, which
Keras imports where it finds it, and which makes the import of TensorFlow longer for everybody.
"""

import argparse
import contextlib
import functools
import json
import os
import pathlib
import re
import resource
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field

import core
from report import Figure, machine, results, save

ROUNDS = 3
FEW = 2  # trials of the call that is taken off
STARTS = 20  # interpreters, to see what an import costs
RESULTS = results("python")
USAGE = "BENCH_CPU_USAGE"  # the variable that tells a runner which file counts its CPU time
FRESH = """
import sys, tensorflow as tf
sys.stdout.write(f"{float(tf.reduce_sum(tf.ones((2, 2))) * float(sys.argv[1]))}\\n")
"""


@dataclass
class Call:
    """One call of a runner."""

    trials: int
    seconds: float
    cpu_s: float
    processes: int  # that ran a trial


@dataclass
class Cost:
    trials: int
    per_second: float
    steady: float | None  # trials per second once it runs
    cpu_ms: float  # per trial, of all processes
    processes: int


@dataclass
class Report:
    rounds: int
    cpu_by: str
    costs: dict[str, Cost] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # such as: trials could not be forked


# --- CPU time ----------------------------------------------------------------


def own_group() -> str | None:
    """The folder of the cgroup (v2, also beside v1) that this process is in."""
    with open("/proc/self/mountinfo") as mounts:
        place = re.search(r"^(?:\S+ ){3}(\S+) (\S+) .* - cgroup2 ", mounts.read(), re.M)
    with open("/proc/self/cgroup") as groups:
        path = re.search(r"^0::/(.*)$", groups.read(), re.M)
    return os.path.join(place[2], os.path.relpath("/" + path[1], place[1])) if place and path else None


@contextlib.contextmanager
def group() -> Iterator[str | None]:
    """A cgroup for one runner; None where we may not make one."""
    own = own_group()
    try:
        folder = tempfile.mkdtemp(prefix="hopyard-bench-", dir=own) if own else None
    except OSError:
        folder = None
    try:
        yield folder
    finally:
        if folder:
            os.rmdir(folder)


def cpu_s() -> float:
    """Of this runner's processes, those that have ended too; of the whole machine, where it has no cgroup."""
    if path := os.environ.get(USAGE):
        with open(path) as stat:
            return int(stat.read().split()[1]) / 1e6
    with open("/proc/stat") as stat:
        user, nice, system, _, _, irq, soft = map(int, stat.readline().split()[1:8])
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


# --- the runners, each in a process of its own -----------------------------------


def trial(x: float) -> float:
    import tensorflow as tf

    return float(tf.reduce_sum(tf.ones((2, 2))) * x)


def check(values: list[float | None], n: int) -> None:
    """A runner that lost a trial would look fast."""
    if sorted(v for v in values if v is not None) != [4.0 * x for x in range(n)]:
        raise SystemExit(f"{n} trials were asked for, and these values came back: {values}")


def run_hopyard(n: int) -> int:
    from hopyard import experiment

    result = experiment.grid_search(trial, {"x": list(range(n))}, parallel=2, tensorboard=False)
    check([t.metric for t in result.trials], n)
    return n


def run_fresh(n: int) -> int:
    numbers = "".join(f"{x}\n" for x in range(n))
    command = ["xargs", "-P", "2", "-n", "1", sys.executable, "-c", FRESH]
    done = subprocess.run(command, input=numbers, stdout=subprocess.PIPE, text=True, check=True)
    check([float(value) for value in done.stdout.split()], n)
    return n


def ray_trial(config: dict) -> None:
    from ray import tune

    tune.report({"value": trial(config["x"]), "pid": os.getpid()})


def run_ray(reuse: bool, n: int) -> int:
    from ray import tune

    tuner = tune.Tuner(
        ray_trial, param_space={"x": tune.grid_search(list(range(n)))},
        tune_config=tune.TuneConfig(max_concurrent_trials=2, reuse_actors=reuse),
        run_config=tune.RunConfig(storage_path=os.environ["HOME"], verbose=0),
    )  # fmt: skip
    results = list(tuner.fit())
    check([r.metrics.get("value") for r in results], n)
    return len({r.metrics["pid"] for r in results})


@contextlib.contextmanager
def ray_started() -> Iterator[None]:
    """Its lightest form: no dashboard, nothing printed, nothing sent home."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    with tempfile.TemporaryDirectory(prefix="ray-") as folder:  # its sockets need a short path
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR", _temp_dir=folder)
        try:
            yield
        finally:
            ray.shutdown()


def ray_python() -> str:
    """An interpreter with Ray beside all that ours has."""
    folder = os.path.join(core.WORK, "ray")
    python, done = os.path.join(folder, "bin", "python"), os.path.join(folder, "installed")
    if not os.path.exists(done):
        print("installing Ray below build/ …", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        scheme = {"base": folder, "platbase": folder}
        with open(os.path.join(sysconfig.get_path("purelib", "venv", scheme), "ours.pth"), "w") as ours:
            ours.write(sysconfig.get_path("purelib") + "\n")
        subprocess.run([python, "-m", "pip", "install", "--quiet", "ray[tune]"], check=True)
        open(done, "w").close()
    return python


@dataclass
class Runner:
    name: str
    run: Callable[[int], int]
    trials: int
    steady: bool = False  # one import serves many trials
    around: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext
    python: Callable[[], str] = lambda: sys.executable


def ray_runner(name: str, reuse: bool, trials: int) -> Runner:
    return Runner(name, functools.partial(run_ray, reuse), trials, reuse, ray_started, ray_python)


RUNNERS = {
    "hopyard": Runner("hopyard, a process per trial", run_hopyard, 200, steady=True),
    "fresh": Runner("a fresh interpreter per trial, xargs -P2", run_fresh, 20),
    "ray": ray_runner("Ray Tune, a process per trial", False, 20),
    "ray-reuse": ray_runner("Ray Tune, reuse_actors=True", True, 200),
}


def timed(run: Callable[[int], int], n: int) -> Call:
    cpu, started = cpu_s(), time.monotonic()
    processes = run(n)
    return Call(n, time.monotonic() - started, cpu_s() - cpu, processes)


def be_runner(runner: Runner, counts: list[int]) -> None:
    """What the process of a runner does; its last line is for measure()."""
    with runner.around():
        calls = [asdict(timed(runner.run, n)) for n in counts]
    print(json.dumps(calls))


# --- measuring ---------------------------------------------------------------------


def run_in(folder: str | None, command: list[str], env: dict[str, str]) -> str:
    """What a command prints, all of whose processes are in this cgroup."""
    if folder:
        env = {**env, USAGE: os.path.join(folder, "cpu.stat")}
        command = ["sh", "-c", 'echo $$ >"$0" && exec "$@"', os.path.join(folder, "cgroup.procs"), *command]
    paths = [os.path.join(core.WORK, name) for name in ("output.txt", "errors.txt")]
    with open(paths[0], "wb") as out, open(paths[1], "wb") as err:  # no pipes: a daemon may keep them open
        done = subprocess.run(command, env=env, cwd=core.WORK, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
    core.reap_all()
    said, errors = (pathlib.Path(path).read_text(errors="replace") for path in paths)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with status {done.returncode}:\n{(said + errors)[-3000:]}")
    return said


def measure(report: Report, key: str, counts: list[int]) -> list[Call]:
    """The calls of a runner, one after the other, in a process, a project and a cgroup of its own."""
    command = [RUNNERS[key].python(), os.path.abspath(__file__), "--runner", key, *map(str, counts)]
    env = core.project(f"python-{key}")
    with group() as folder:
        lines = run_in(folder, command, env).splitlines()
    shutil.rmtree(env["HOME"])
    report.notes += [note for line in lines if (note := f"{key}: {line}") not in report.notes and "note:" in line]
    return [Call(**call) for call in json.loads(lines[-1])]


def cost(calls: list[Call], few: list[Call]) -> Cost:
    """The medians over the rounds: of the whole calls, and of those to be taken off, if any."""
    n, seconds = calls[0].trials, statistics.median(c.seconds for c in calls)
    rest = seconds - statistics.median(c.seconds for c in few) if few else 0
    return Cost(n, n / seconds, (n - FEW) / rest if rest > 0 else None,
                statistics.median(c.cpu_s for c in calls) * 1000 / n, max(c.processes for c in calls))


def bench_trials(report: Report, keys: list[str], scale: int) -> None:
    calls: dict[str, list[list[Call]]] = {key: [] for key in keys}
    for _ in range(report.rounds):
        for key in keys:
            runner = RUNNERS[key]
            n = runner.trials // scale  # the few in a process of their own: they are to import TensorFlow, too
            calls[key].append([*measure(report, key, [n]), *(measure(report, key, [FEW]) if runner.steady else [])])
            whole = cost(calls[key][-1][:1], [])
            print(f"  {runner.name}: {whole.per_second:.2f} trials/s, {whole.cpu_ms:.0f} ms of CPU each", flush=True)
    for key in keys:
        report.costs[key] = cost([c[0] for c in calls[key]], [c[1] for c in calls[key] if len(c) > 1])
    for key, target in (("fresh", 30), ("ray", 20), ("ray-reuse", 1)):
        if key in report.costs and "hopyard" in report.costs:
            times = report.costs["hopyard"].per_second / report.costs[key].per_second
            name = f"rate, as a multiple of: {RUNNERS[key].name}"
            report.figures.append(Figure(name, times, "×", target, less=False))


def bench_again(report: Report) -> None:
    """From a call to the first line of its first trial: a notebook's first call, and its second."""
    env = core.project("python-again")
    command = [sys.executable, os.path.abspath(__file__), "--again"]
    both = [json.loads(run_in(None, command, env).splitlines()[-1]) for _ in range(report.rounds)]
    shutil.rmtree(env["HOME"])
    first, second = (statistics.median(column) for column in zip(*both))
    report.figures.append(Figure("second call of a process, to its first trial's first line", second, "s", 0.5))
    report.figures.append(Figure("the same, as a part of the first call", second / first, "", 0.5))


def be_notebook() -> None:
    """Calls the same function twice; the last line says how long each took to begin."""
    from hopyard import experiment

    def training(x: int) -> float:
        began = time.time()
        import tensorflow as tf

        tf.ones((2, 2))
        return began

    took = []
    for _ in range(2):
        asked = time.time()
        result = experiment.grid_search(training, {"x": [1, 2]}, direction="min", parallel=2, tensorboard=False)
        took.append(result.best.metric - asked)
    print(json.dumps(took))


def bench_search(report: Report) -> None:
    """A search of one trivial trial in a process that has called it before; CPU time is that of its programs and of the
    driver, which a subreaper waits for, without the agent, which stays."""
    env = core.project("python-search")
    command = [sys.executable, os.path.abspath(__file__), "--search"]
    both = [json.loads(run_in(None, command, env).splitlines()[-1]) for _ in range(report.rounds)]
    shutil.rmtree(env["HOME"])
    wall, cpu = (statistics.median(column) for column in zip(*both))
    start = statistics.median(start_ms("pass") for _ in range(STARTS))
    report.figures.append(Figure("a warm search of one trivial trial", wall, "ms", 36))
    report.figures.append(Figure("its CPU time", cpu, "ms", 36))
    report.figures.append(Figure("its time, in starts of a Python interpreter", wall / start, "", 3))


def be_searcher() -> None:
    from hopyard import experiment

    core.become_subreaper()
    took = []
    for _ in range(1 + STARTS):
        used, asked = cpu_of_children(), time.monotonic()
        experiment.grid_search(lambda x: x, {"x": [1]}, tensorboard=False)
        wall = time.monotonic() - asked
        time.sleep(0.1)  # the driver ends
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        took.append((wall * 1000, (cpu_of_children() - used) * 1000))
    print(json.dumps([statistics.median(column) for column in zip(*took[1:])]))


def cpu_of_children() -> float:
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def start_ms(code: str) -> float:
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", code], check=True)
    return (time.monotonic() - started) * 1000


def bench_import(report: Report) -> None:
    both = [(start_ms("import hopyard"), start_ms("pass")) for _ in range(STARTS)]
    ours, nothing = (statistics.median(column) for column in zip(*both))
    report.figures.append(Figure("`import hopyard`", ours - nothing, "ms", 50))


# --- the report ----------------------------------------------------------------------


def show(report: Report) -> None:
    if report.costs:
        title = "one TensorFlow op, two trials at a time"
        print(f"\n{title:<43} {'trials':>7} {'processes':>10} {'trials/s':>9} {'steady':>7} {'CPU ms/trial':>13}")
    for key, c in report.costs.items():
        steady = "-" if c.steady is None else f"{c.steady:.2f}"
        print(f"  {RUNNERS[key].name:<41} {c.trials:>7} {c.processes:>10.0f} {c.per_second:>9.2f} {steady:>7} "
              f"{c.cpu_ms:>13.0f}")
    print(f"\n  {'figure':<64} {'measured':>9} {'':<4} {'asked':>9}")
    for figure in report.figures:
        bound = f"{'<' if figure.less else '≥'} {figure.target:g} {figure.unit}"
        verdict = "ok" if figure.met else "MISSED"
        print(f"  {figure.name:<64} {figure.measured:>9.3g} {figure.unit:<4} {bound:>9}   {verdict}")
    for note in report.notes:
        print(f"  {note}")
    print("  trials/s is of the whole call, and counts: the start of the run and the import of TensorFlow are in it,\n"
          "  ray.init is not; steady: with a call of two trials taken off\n"
          f"  medians of {report.rounds}, CPU time {report.cpu_by}; {machine()}; "
          f"all of it is in {os.path.relpath(RESULTS)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round with a quarter of the trials")
    parts = [*RUNNERS, "again", "search", "import"]
    parser.add_argument("--only", nargs="*", default=parts, choices=parts, metavar="PART", help=", ".join(parts))
    parser.add_argument("--runner", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--again", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--search", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.again or options.search:
        (be_notebook if options.again else be_searcher)()
        return 0
    if options.runner:
        be_runner(RUNNERS[options.runner[0]], [int(n) for n in options.runner[1:]])
        return 0
    os.makedirs(core.WORK, exist_ok=True)
    core.become_subreaper()
    with group() as folder:
        cpu_by = "by a cgroup" if folder else "of the whole machine (no cgroup to be had)"
    report = Report(1 if options.quick else ROUNDS, cpu_by)
    bench_trials(report, [key for key in RUNNERS if key in options.only], 4 if options.quick else 1)
    if "again" in options.only:
        bench_again(report)
    if "search" in options.only:
        bench_search(report)
    if "import" in options.only:
        bench_import(report)
    show(report)
    save(RESULTS, report.figures, rounds=report.rounds, cpu_by=report.cpu_by, notes=report.notes,
         costs={key: {"name": RUNNERS[key].name, **asdict(c)} for key, c in report.costs.items()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
