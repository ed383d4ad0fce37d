# SPDX-License-Identifier: Apache-2.0
"""The process that forks trials, driven by a stand-in for an agent: this process."""

import contextlib
import ctypes
import glob
import json
import os
import platform
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from trials import TIMEOUT_S, bundle, cold, environment, result_of

PR_SET_CHILD_SUBREAPER = 36
TAG_ROOM = 64


def proc_stat(pid):
    """(parent, session) of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1]), int(fields[3])


def children(pid):
    return set(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


def proc_environment(pid):
    words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(word.decode().split("=", 1) for word in words if word)


class Trial:
    """One that was asked for; it waits until go()."""

    def __init__(self, control, outputs):
        self.control, self.outputs = control, outputs
        self.answer = control.recv(4096).decode()
        self.pid = int(self.answer.split()[1]) if self.answer.startswith("pid ") else 0

    def go(self):
        self.control.sendall(b"g")

    def end(self):
        """(status, stdout, stderr), when it has ended."""
        texts = [b"", b""]

        def read(i):
            with open(self.outputs[i], "rb") as pipe:
                texts[i] = pipe.read()

        readers = [threading.Thread(target=read, args=(i,)) for i in (0, 1)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        self.control.close()
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]) if self.pid else None
        return status, texts[0].decode(), texts[1].decode()


class Server:
    def __init__(self, folder, fn, preload=(), **env):
        self.folder = folder
        self.function = bundle(fn, folder, preload)
        self.marks = {"HOPYARD_AGENT": f"{os.getpid()}:0-0"}
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(TIMEOUT_S)
        with theirs, open(folder / "log", "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "hopyard._trial", "--serve"], cwd=folder, pass_fds=[theirs.fileno()],
                env={"HOPYARD_TAG": "_" * TAG_ROOM, **self.marks, **environment(folder, self.function), **env,
                     "HOPYARD_SERVER": str(theirs.fileno())},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.word = self.socket.recv(4096).decode()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
        self.process.wait(TIMEOUT_S)

    @property
    def pid(self):
        return self.process.pid

    @property
    def log(self):
        return (self.folder / "log").read_text()

    def fork(self, params=None, seed=1, tag="7.1.1", cwd=None, open_files=0, keep=(), payload=None, word=b"fork",
             cgroup="/dev/null", **env):  # fmt: skip
        words = {**environment(self.folder, self.function, params, seed), **self.marks, "HOPYARD_TAG": tag, **env}
        texts = [str(cwd or self.folder), str(open_files), str(len(words)), *(f"{k}={v}" for k, v in words.items())]
        with contextlib.ExitStack() as closing:

            def close_later(fd):
                closing.callback(os.close, fd)
                return fd

            memory = close_later(os.memfd_create("payload"))
            os.write(memory, "".join(f"{t}\0" for t in texts).encode() if payload is None else payload)
            (out, out_end), (err, err_end) = os.pipe(), os.pipe()
            ours, theirs = socket.socketpair()
            closing.enter_context(theirs)
            ours.settimeout(TIMEOUT_S)
            cgroup_fd = close_later(os.open(cgroup, os.O_WRONLY))
            fds = [memory, close_later(out_end), close_later(err_end), theirs.fileno(), cgroup_fd, *keep]
            socket.send_fds(self.socket, [word], fds)
        return Trial(ours, (out, err))

    def run(self, *args, **settings):
        """A trial from its start to its end: (status, stdout, stderr)."""
        trial = self.fork(*args, **settings)
        assert trial.pid, trial.answer
        trial.go()
        return trial.end()


@pytest.fixture(autouse=True)
def subreaper():
    """Trials become our children, as they become an agent's."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    yield
    libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def facts():
    """What a trial sees of itself, on stdout."""
    import ctypes
    import json
    import os
    import resource
    import signal
    import sys
    import threading

    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_char_p
    print(json.dumps({
        "pid": os.getpid(), "cwd": os.getcwd(), "argv": sys.argv[1:], "stdin": os.readlink("/proc/self/fd/0"),
        "tag": os.environ["HOPYARD_TAG"], "getenv": libc.getenv(b"HOPYARD_TAG").decode(),
        "own": os.environ.get("OWN"), "server": os.environ.get("HOPYARD_SERVER"),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "int": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "term": signal.getsignal(signal.SIGTERM) is signal.SIG_DFL,
        "pipe": signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN,
        "thread": threading.get_native_id(), "threads": threading.active_count(),
        "fds": sorted(os.listdir("/proc/self/fd"), key=int),
    }))  # fmt: skip
    print("to stderr", file=sys.stderr)
    return 0.5


def idle():
    return 1


# ---- a trial -----------------------------------------------------------------------------


def test_trial_is_a_child_of_the_agent_with_its_session_and_tag(tmp_path):
    with Server(tmp_path, facts) as server:
        assert server.word == "ready\n"
        trial = server.fork(tag="12.345.6")
        assert proc_stat(trial.pid) == (os.getpid(), trial.pid)
        assert proc_environment(trial.pid)["HOPYARD_TAG"] == "12.345.6"
        assert proc_environment(trial.pid)["HOPYARD_AGENT"] == server.marks["HOPYARD_AGENT"]
        assert proc_environment(server.pid)["HOPYARD_TAG"] == "_" * TAG_ROOM
        assert Path(f"/proc/{trial.pid}/comm").read_text() == "hopyard-trial\n"
        trial.go()
        status, _, err = trial.end()
        assert (status, err, result_of(tmp_path)) == (0, "to stderr\n", {"metric": 0.5})


def test_forked_trial_has_the_state_of_a_fresh_process(tmp_path):
    folder = tmp_path / "else where"
    folder.mkdir()
    with Server(tmp_path, facts) as server:
        status, out, _ = server.run(cwd=folder, open_files=99, OWN="of this trial", tag="t")
    seen = json.loads(out)
    fresh = json.loads(cold(tmp_path, server.function, HOPYARD_TAG="t").stdout)
    assert status == 0 and seen["thread"] == seen["pid"]
    assert (seen["cwd"], seen["own"], seen["files"]) == (str(folder), "of this trial", 99)
    assert (seen["tag"], seen["getenv"], seen["server"]) == ("t", "t", None)
    same = ("argv", "stdin", "int", "term", "pipe", "threads", "fds")
    assert {name: seen[name] for name in same} == {name: fresh[name] for name in same}


def test_variables_set_by_imports_stay_unless_the_trial_sets_them(tmp_path):
    (tmp_path / "setter.py").write_text(
        "import os\nos.environ.update(SET='by import', BOTH='by import', NEW='by import')\n"
    )

    def training():
        print(os.environ["SET"], os.environ["BOTH"], os.environ["NEW"], sep=", ")

    with Server(tmp_path, training, ["setter"], SET="before", BOTH="before") as server:
        assert server.run(SET="before", BOTH="by trial")[1] == "by import, by trial, by import\n"


def test_inherited_descriptors_stay_open_in_a_trial_and_its_children(tmp_path):
    def training(kept):
        import os
        import subprocess

        inherited = subprocess.run(["ls", "/proc/self/fd"], capture_output=True, text=True, close_fds=False).stdout
        ours = [f for f in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{f}")]
        names = {f: os.readlink(f"/proc/self/fd/{f}") for f in ours if f in inherited.split()}
        print(sum(name.endswith(kept) for name in names.values()))

    file = tmp_path / "kept"
    file.touch()
    with Server(tmp_path, training) as server:
        fds = [os.open(file, os.O_RDONLY) for _ in range(200)]
        status, out, err = server.run({"kept": "/kept"}, keep=fds)
        assert (status, out, err) == (0, "200\n", "")
        links = [os.readlink(f"/proc/{server.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{server.pid}/fd")]
        assert not any(link.endswith("/kept") for link in links)
        for fd in fds:
            os.close(fd)


def test_a_trial_enters_the_cgroup_it_is_given(tmp_path):
    """By writing 0, its own process, to a file that the agent has opened."""
    (tmp_path / "procs").touch()
    with Server(tmp_path, idle) as server:
        assert server.run(cgroup=tmp_path / "procs")[0] == 0
    assert (tmp_path / "procs").read_text() == "0"


def test_exceptions_and_exit_statuses_work_in_a_fork(tmp_path):
    def training(how):
        if how == "raise":
            raise ValueError("bad")
        if how == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
        sys.exit(how)

    with Server(tmp_path, training) as server:
        status, _, err = server.run({"how": "raise"})
        assert status == 1 and err.startswith("Traceback") and "ValueError: bad" in err
        assert server.run({"how": 7})[0] == 7
        assert server.run({"how": "interrupt"})[0] == -signal.SIGINT


def test_a_trial_knows_which_cpu_it_is_on(tmp_path):
    """glibc reads it from where the kernel writes it, and the kernel must be told again where that is."""

    def training():
        libc = ctypes.CDLL(None)
        for cpu in sorted(os.sched_getaffinity(0)):
            os.sched_setaffinity(0, {cpu})
            print(cpu == libc.sched_getcpu())

    cpus = len(os.sched_getaffinity(0))
    with Server(tmp_path, training) as server:
        assert server.run()[1] == "True\n" * cpus


# ---- many trials ---------------------------------------------------------------------------


def test_300_forks_leak_no_descriptor_and_no_process(tmp_path):
    with Server(tmp_path, idle) as server:
        server.run()
        files, processes = os.listdir(f"/proc/{server.pid}/fd"), children(os.getpid())
        for number in range(300):
            if number % 3 == 0:
                assert server.fork(payload=b"nonsense").answer.startswith("error ")
            elif number % 3 == 1:
                trial = server.fork()
                trial.control.close()
                trial.end()
            else:
                assert server.run()[0] == 0
        assert os.listdir(f"/proc/{server.pid}/fd") == files
        assert children(server.pid) == set() and children(os.getpid()) == processes


def drawing():
    import random

    import numpy

    print(random.random(), numpy.random.random(), numpy.random.default_rng().random())


def test_random_numbers_differ_from_trial_to_trial_and_follow_the_seed(tmp_path):
    with Server(tmp_path, drawing, ["numpy", "numpy.random"]) as server:
        assert server.word == "ready\n"
        first, second, again = (server.run(seed=seed)[1].split() for seed in (1, 2, 1))
    fresh = cold(tmp_path, server.function, seed=1).stdout.split()
    assert len(set(first) | set(second)) == 6
    assert first[:2] == again[:2] == fresh[:2] and first[2] != again[2]


def arrow_sum():
    import pandas
    import pyarrow

    return float(pyarrow.table(pandas.DataFrame({"x": range(100_000)})).column("x").to_numpy().sum())


def test_thread_started_by_pandas_is_harmless(tmp_path):
    """pandas imports pyarrow, whose allocator keeps a thread of its own."""
    with Server(tmp_path, arrow_sum, ["pandas"]) as server:
        assert server.word == "ready\n"
        threads = [Path(path).read_text().strip() for path in glob.glob(f"/proc/{server.process.pid}/task/*/comm")]
        assert "jemalloc_bg_thd" in threads, "then this test proves nothing"
        assert [server.run()[0] for _ in range(20)] == [0] * 20


# ---- refusals --------------------------------------------------------------------------------


def test_thread_left_by_an_import_prevents_forking(tmp_path):
    (tmp_path / "threaded.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, name='pump').start()\n"
    )
    with Server(tmp_path, idle, ["json", "threaded"]) as server:
        assert server.word == (
            "refuse importing threaded has left a thread running (pump), so trials cannot be forked "
            "and each starts a fresh interpreter; start it in the function\n"
        )
        assert server.process.wait(TIMEOUT_S) == 0


def test_failing_import_is_logged_and_left_to_the_trial(tmp_path):
    (tmp_path / "broken.py").write_text("raise ValueError('no data')\n")
    (tmp_path / "leaving.py").write_text("raise SystemExit(3)\n")
    with Server(tmp_path, idle, ["broken", "missing", "leaving"]) as server:
        assert server.word == "ready\n" and server.run()[0] == 0
    assert server.log.splitlines() == [
        "hopyard: cannot import broken ahead of the trials: ValueError: no data",
        "hopyard: cannot import missing ahead of the trials: ModuleNotFoundError: No module named 'missing'",
        "hopyard: cannot import leaving ahead of the trials: SystemExit: 3",
    ]


def test_later_thread_prevents_forking_until_it_ends(tmp_path):
    (tmp_path / "later.py").write_text(
        "import signal, threading\n"
        "stop = threading.Event()\n"
        "thread = threading.Thread(target=stop.wait)\n"
        "signal.signal(signal.SIGUSR1, lambda *_: thread.start())\n"
        "signal.signal(signal.SIGUSR2, lambda *_: (stop.set(), thread.join()))\n"
    )

    def send_signal(server, number):
        server.process.send_signal(number)
        server.socket.send(b"wake up")

    with Server(tmp_path, idle, ["later"]) as server:
        send_signal(server, signal.SIGUSR1)
        assert server.fork().answer == (
            "refuse the fork server has 2 threads, so this trial starts in a new interpreter\n"
        )
        send_signal(server, signal.SIGUSR2)
        assert server.run()[0] == 0


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"cwd": "/none/such"}, "error cannot enter the trial's directory '/none/such': No such file or directory\n"),
        ({"tag": "x" * 65}, f"error the tag '{'x' * 65}' is longer than 64 bytes\n"),
        ({"word": b"spoon"}, "error unknown request 'spoon' from the agent; is it of another version?\n"),
        ({"keep": [0] * 248},
         "error the agent sent 253 descriptors, but 5 to 205 are expected; is it of another version?\n"),
        ({"cgroup": "/dev/full"}, "error cannot enter the trial's cgroup: No space left on device\n"),
    ],
)
def test_invalid_request_is_an_error_and_the_server_continues(tmp_path, asked, sentence):
    with Server(tmp_path, idle) as server:
        trial = server.fork(**asked)
        assert (trial.answer, trial.end()) == (sentence, (None, "", ""))
        assert server.run()[0] == 0
    for pid in children(os.getpid()):  # those that told it themselves
        os.waitpid(int(pid), 0)


@pytest.mark.parametrize(
    "payload",
    [b"", b"/", b"/\0", b"/\0" + b"0\0", b"/\0x\0" + b"0\0", b"/\0" + b"0\0" + b"1\0", b"/\0" + b"0\0" + b"1\0A=1\0",
     b"/\0" + b"0\0" + b"1\0HOPYARD_TAG=1", b"/\0" + b"0\0" + b"1\0HOPYARD_TAG\0", b"/\0" + b"0\0" + b"1\0=1\0",
     b"/\0" + b"0\0" + b"18446744073709551615\0HOPYARD_TAG=1\0", b"/\0" + b"0\0" + b"1\0HOPYARD_TAG=1\0more\0"],
)  # fmt: skip
def test_invalid_payload_is_an_error(tmp_path, payload):
    with Server(tmp_path, idle) as server:
        answer = server.fork(payload=payload).answer
        assert answer == "error invalid request for a trial; is the agent of another version?\n"


def test_request_without_a_reply_socket_is_dropped(tmp_path):
    with Server(tmp_path, idle) as server:
        server.socket.send(b"fork")
        socket.send_fds(server.socket, [b"fork"], [0, 1, 2])
        assert server.run()[0] == 0


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter names x86-64's system calls")
def test_failed_fork_is_an_error_and_the_server_continues(tmp_path):
    """A seccomp filter stands for the machine: clone() fails with EAGAIN from the first trial on."""
    (tmp_path / "full.py").write_text(
        "import ctypes, struct\n"
        "code = [(0x20, 0, 0, 0), (0x15, 0, 1, 56), (0x06, 0, 0, 0x00050000 | 11), (0x06, 0, 0, 0x7fff0000)]\n"
        "filters = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *c) for c in code))\n"
        "program = struct.pack('H6xP', len(code), ctypes.addressof(filters))\n"
        "libc = ctypes.CDLL(None)\n"
        "assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0\n"
    )
    with Server(tmp_path, idle, ["full"]) as server:
        for _ in range(2):
            assert server.fork().answer == "again cannot fork a trial: Resource temporarily unavailable\n"
        assert children(server.pid) == set()


# ---- deaths ------------------------------------------------------------------------------------


def test_a_trial_that_waits_outlives_the_server(tmp_path):
    with Server(tmp_path, idle) as server:
        trial = server.fork()
        server.process.kill()
        server.process.wait(TIMEOUT_S)
        trial.go()
        assert trial.end()[0] == 0 and result_of(tmp_path) == {"metric": 1.0}


def test_trial_that_is_never_released_ends_without_running(tmp_path):
    with Server(tmp_path, idle) as server:
        trial = server.fork()
        trial.control.close()
        assert trial.end() == (0, "", "") and result_of(tmp_path) is None


def test_a_trial_dies_with_the_agent(tmp_path):
    """The agent is a process of its own here: one that starts a server and a trial, and is killed."""

    def training():
        import signal

        signal.pause()

    ready, told = os.pipe()
    agent = os.fork()
    if agent == 0:
        try:
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            server = Server(tmp_path, training)
            trial = server.fork()
            trial.go()
            os.write(told, f"{trial.pid} {server.pid}".encode())
            signal.pause()
        finally:
            os._exit(1)
    pids = [int(pid) for pid in os.read(ready, 100).split()]
    pidfds = [os.pidfd_open(pid) for pid in pids]
    os.kill(agent, signal.SIGKILL)
    os.waitpid(agent, 0)
    for pid, pidfd in zip(pids, pidfds):
        assert select.select([pidfd], [], [], TIMEOUT_S)[0], f"{pid} lives"
        os.waitpid(pid, 0)
        os.close(pidfd)
    os.close(ready)
    os.close(told)


def test_server_ends_with_its_socket_and_ignores_interrupts(tmp_path):
    with Server(tmp_path, idle) as server:
        server.process.send_signal(signal.SIGINT)
        assert server.run()[0] == 0
        server.socket.close()
        assert server.process.wait(TIMEOUT_S) == 0
    assert server.log == ""


# ---- TensorFlow ----------------------------------------------------------------------------------


def test_tensorflow_works_in_every_fork(tmp_path):
    def training(number):
        import keras
        import numpy

        import tensorflow as tf

        total = float(tf.reduce_sum(tf.matmul(tf.ones((64, 64)), tf.ones((64, 64)))))
        rows = sum(int(x) for x in tf.data.Dataset.range(100).map(lambda x: 2 * x).batch(10).prefetch(2).unbatch())
        model = keras.Sequential([keras.layers.Dense(4, activation="relu"), keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse")
        loss = model.fit(numpy.ones((32, 8)), numpy.ones(32), epochs=1, verbose=0).history["loss"][0]
        print(json.dumps([total, rows, loss, float(tf.random.uniform([])), float(numpy.random.random())]))
        return number

    with Server(tmp_path, training, ["tensorflow", "keras"]) as server:
        assert server.word == "ready\n", server.log
        seen = []
        for pair in range(10):
            trials = [server.fork({"number": n}, seed=n) for n in (1, 2 + pair)]
            for trial in trials:
                trial.go()
            for trial in trials:
                status, out, err = trial.end()
                assert status == 0, err
                seen.append(json.loads(out))
    assert all(row[:2] == [64.0**3, 9900] for row in seen)
    assert all(row == seen[0] for row in seen[::2]), "one seed, one course of training"
    assert len({tuple(row[2:]) for row in seen[1::2]}) == 10, "another seed, another one"


def test_op_run_by_an_import_prevents_forking(tmp_path):
    (tmp_path / "mymodel.py").write_text("import tensorflow as tf\nONE = tf.constant(1.0) + 0.0\n")
    with Server(tmp_path, idle, ["tensorflow", "mymodel"]) as server:
        assert server.word == (
            "refuse importing mymodel has run a TensorFlow operation, so trials cannot be forked "
            "and each starts a fresh interpreter; move the operation into the function\n"
        )
        assert server.process.wait(TIMEOUT_S) == 0
