# SPDX-License-Identifier: Apache-2.0
"""`hopyard fs`: every command and every error, on the file system of `base`."""
from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Yard, wait_for


@pytest.fixture
def base(tmp_path: Path) -> Iterator[str]:
    """An empty directory of the file system under test, as a URL."""
    folder = tmp_path / "base"
    folder.mkdir()
    yield str(folder)


class Files:
    """The program, and paths below `base`: `f / "a/b"`."""

    def __init__(self, yard: Yard, base: str) -> None:
        self.yard, self.base = yard, base

    def __truediv__(self, path: str) -> str:
        return f"{self.base}/{path}"

    def start(self, *args: object, **kw: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self.yard.command("fs", *args), env=self.yard.env, cwd=self.yard.project, **kw)

    def run(self, *args: object, rc: int = 0, stdin: bytes = b"") -> bytes:
        """Returns its standard output; its standard error is in `stderr`."""
        p = subprocess.run(self.yard.command("fs", *args), env=self.yard.env, cwd=self.yard.project, input=stdin,
                           capture_output=True, timeout=120)
        self.stderr = p.stderr.decode()
        assert p.returncode == rc, f"fs {args}: {p.returncode}\n{p.stdout.decode(errors='replace')}\n{self.stderr}"
        assert bool(self.stderr) == bool(rc), self.stderr
        return p.stdout

    def write(self, path: str, content: bytes = b"x\n") -> str:
        self.run("put", "-f", "-", self / path, stdin=content)
        return self / path

    def read(self, path: str) -> bytes:
        return self.run("cat", self / path)

    def make(self, path: str) -> str:
        self.run("mkdir", "-p", self / path)
        return self / path

    def json(self, *args: object) -> list[dict[str, Any]]:
        return json.loads(self.run(args[0], "--json", *args[1:]))

    def names(self, path: str = "") -> list[str]:
        """All below a directory, including hidden files."""
        top = self / path if path else self.base
        return [e["path"].removeprefix(top).lstrip("/") for e in self.json("ls", "-R", top)]

    def fails(self, words: str, *args: object) -> None:
        """It fails with one line that matches these words."""
        self.run(*args, rc=1)
        assert re.search(words, self.stderr), self.stderr
        assert self.stderr.startswith("hopyard fs: ") and self.stderr.count("\n") == 1, self.stderr


@pytest.fixture
def f(yard: Yard, base: str) -> Files:
    return Files(yard, base)


# ---- listing ----

def test_ls_shows_a_line_for_each_file_with_columns_aligned(f: Files) -> None:
    f.write("a", b"12345")
    f.write("longer", b"1" * 1000)
    f.make("d")
    lines = f.run("ls", f.base).decode().splitlines()
    assert [line.split()[-1] for line in lines] == [f / "a", f / "d", f / "longer"]
    assert [line.split()[4] for line in lines] == ["5", "0", "1000"]
    assert [line[0] for line in lines] == ["-", "d", "-"]
    assert re.fullmatch(r"-rw-r--r-- +\d+ +\S+ +\S+ +5  \d{4}-\d\d-\d\d \d\d:\d\d  \S+", lines[0]), lines[0]
    assert len({line.index(f.base) for line in lines}) == 1
    assert f.run("-ls", f.base).decode().splitlines() == lines, "as behind `hdfs dfs`"
    assert f.run("ls", "-l", f.base).decode().splitlines() == lines
    assert [line.split()[-1] for line in f.run("ls", "-d", f.base).decode().splitlines()] == [f.base]
    assert "1000 B" in f.run("ls", "-h", f.base).decode()


def test_ls_recursive(f: Files) -> None:
    f.make("d/e")
    f.write("d/e/x")
    f.write("d/.hidden")
    assert f.names() == ["d", "d/.hidden", "d/e", "d/e/x"]
    assert [e["path"] for e in f.json("ls", f / "d")] == [f / "d/.hidden", f / "d/e"]
    assert [e["path"] for e in f.json("ls", f / "d/e/x")] == [f / "d/e/x"]


def test_ls_json_has_all_fields(f: Files) -> None:
    f.write("a", b"123")
    entry, = f.json("ls", f.base)
    assert entry["path"] == f / "a" and entry["type"] == "file" and entry["size"] == 3 and entry["mode"] == "0644"
    assert entry["owner"] and entry["group"] and entry["replication"] >= 1 and entry["modified_ms"] > 1_600_000_000_000
    assert f.json("ls", f.make("empty")) == []


def test_names_with_control_characters_are_printed_safely(f: Files) -> None:
    name = "a\x1b[31mb\tc"
    f.write(name, b"x")
    assert b"a\\x1b[31mb\\tc" in f.run("ls", f.base)
    assert b"\x1b" not in f.run("stat", f / name)
    f.fails(r"a.\\\[31mb.c-none matches no files", "cat", f / (name.replace("[", "\\[") + "-none"))
    assert "\x1b" not in f.stderr


def test_many_files_are_listed_in_order(f: Files, yard: Yard) -> None:
    local = yard.project / "many"
    local.mkdir()
    for i in range(2500):
        (local / f"f{i:05}").touch()
    lines = f.run("ls", local).decode().splitlines()
    assert [line.split("/")[-1] for line in lines] == [f"f{i:05}" for i in range(2500)]
    assert len(f.json("ls", local)) == 2500


def test_stat_shows_all_fields(f: Files) -> None:
    f.write("a", b"123")
    text = f.run("stat", f / "a").decode()
    assert re.search(r"^size +3 bytes$", text, re.M) and re.search(r"^rights +rw-r--r-- \(0644\)$", text, re.M)
    one, two = f.json("stat", f / "a", f.base)
    assert (one["size"], one["type"], two["type"]) == (3, "file", "folder")


def test_du_sums_sizes(f: Files) -> None:
    f.make("d")
    f.write("d/a", b"1" * 3000)
    f.write("b", b"1" * 500)
    rows = [line.split() for line in f.run("du", f.base).decode().splitlines()]
    assert [(int(row[0]), row[2]) for row in rows] == [(500, f / "b"), (3000, f / "d")]
    (size, stored, path), = [line.split() for line in f.run("du", "-s", f.base).decode().splitlines()]
    assert int(size) == 3500 and int(stored) >= 0 and path == f.base
    assert "2.9 KB" in f.run("du", "-h", f.base).decode()


def test_df_shows_free_space(f: Files) -> None:
    titles, row = f.run("df", f.base).decode().splitlines()
    path, size, used, free, use = row.split()
    assert titles.split() == ["path", "size", "used", "free", "use"]
    assert path == f.base and int(size) >= int(used) and int(free) > 0 and use.endswith("%")
    assert "B" in f.run("df", "-h", f.base).decode().splitlines()[1]


def test_cat_prints_bytes_unchanged(f: Files) -> None:
    content = bytes(range(256)) * 9000  # more than a chunk
    f.write("a", content)
    f.write("b", b"end")
    assert f.run("cat", f / "a", f / "b") == content + b"end"


def test_tail_prints_the_end(f: Files) -> None:
    f.write("a", b"".join(b"%07d\n" % i for i in range(1000)))
    assert f.run("tail", f / "a") == b"".join(b"%07d\n" % i for i in range(872, 1000))
    assert f.run("tail", "-c", "16", f / "a") == b"0000998\n0000999\n"
    assert len(f.run("tail", "-c1M", f / "a")) == 8000
    f.run("tail", "-c", "some", f / "a", rc=2)
    assert "takes a number of bytes" in f.stderr


def test_tail_follows_a_growing_file_and_exits_quietly(f: Files, tmp_path: Path) -> None:
    path = f.write("log", b"one\n")
    out = tmp_path / "out"
    with open(out, "wb") as to:
        p = f.start("tail", "-f", path, stdout=to, stderr=subprocess.PIPE)
    wait_for(lambda: out.read_bytes() == b"one\n", "the end of the file")
    f.write("log", b"one\ntwo\n")
    wait_for(lambda: out.read_bytes() == b"one\ntwo\n", "the appended data")
    p.send_signal(signal.SIGINT)
    assert p.communicate()[1] == b"" and p.returncode == -signal.SIGINT


# ---- patterns ----

def test_patterns_are_expanded(f: Files) -> None:
    for name in ("a1", "a2", "b1", ".a3"):
        f.write(name, name.encode())
    assert f.run("cat", f / "a?") == b"a1a2"
    assert f.run("cat", f / "{b,a}[12]") == b"a1a2b1"
    assert f.run("cat", f / "*3") == b".a3"
    f.run("rm", f / "a*", f / "[^.a]1")
    assert f.names() == [".a3"]


def test_pattern_without_a_match_is_an_error_and_the_rest_is_done(f: Files) -> None:
    f.write("a", b"1")
    assert f.run("cat", f / "z*", f / "a", rc=1) == b"1"
    assert f.stderr == f"hopyard fs: {f / 'z*'} matches no files\n"
    f.fails("is not closed", "cat", f / "[a")
    f.run("rm", "-f", f / "z*")


def test_file_whose_name_is_a_pattern_is_matched_literally(f: Files, yard: Yard) -> None:
    local = yard.project / "odd"
    local.mkdir()
    (local / "a[1]").write_text("itself")
    (local / "a1").write_text("other")
    f.run("rm", local / "a[1]")
    assert [p.name for p in local.iterdir()] == ["a1"]
    assert f.run("cat", local / "a[1]") == b"other"


# ---- copying ----

@pytest.mark.smoke
def test_put_and_get_copy_files_and_directories(f: Files, yard: Yard) -> None:
    local = yard.project / "local"
    (local / "sub/empty").mkdir(parents=True)
    (local / "sub/a").write_bytes(os.urandom(3_000_000))
    (local / "b").write_bytes(b"")
    f.run("put", "local", f.base)
    assert f.names() == ["local", "local/b", "local/sub", "local/sub/a", "local/sub/empty"]
    f.run("get", f / "local", "back")
    assert (yard.project / "back/sub/a").read_bytes() == (local / "sub/a").read_bytes()
    assert subprocess.run(["diff", "-r", local, yard.project / "back"], check=False).returncode == 0
    f.run("put", "local/b", "local/sub/a", f.make("two"))
    assert f.names("two") == ["a", "b"]


def test_dash_is_standard_input_or_output(f: Files) -> None:
    content = os.urandom(2_500_000)
    f.run("put", "-", f / "in", stdin=content)
    assert f.run("get", f / "in", "-") == content
    assert f.names() == ["in"]


def test_copies_replace_files_only_with_force(f: Files, yard: Yard) -> None:
    (yard.project / "new").write_text("new")
    f.write("a", b"old")
    for args in (["put", "new", f / "a"], ["cp", "new", f / "a"], ["mv", "new", f / "a"], ["put", "-", f / "a"]):
        f.fails("a (is there already|exists already|already exists); use -f to replace it", *args)
        assert f.read("a") == b"old"
        assert (yard.project / "new").exists()
    f.run("put", "-f", "new", f / "a")
    assert f.read("a") == b"new"
    f.write("a", b"old")
    f.run("mv", "-f", "new", f / "a")
    assert f.read("a") == b"new" and not (yard.project / "new").exists()
    (yard.project / "mine").write_text("mine")
    f.fails("already exists", "get", f / "a", "mine")
    f.run("get", "-f", f / "a", "mine")
    assert (yard.project / "mine").read_text() == "new"


def test_cp_copies_directories_only_with_r(f: Files) -> None:
    f.make("d/e")
    f.write("d/e/a", b"1")
    f.fails("d is a directory; add -r to copy directories", "cp", f / "d", f / "new")
    f.run("cp", "-r", f / "d", f / "new")
    assert f.names("new") == ["e", "e/a"]
    f.run("cp", "-R", f / "d", f / "new")  # into it
    assert f.names("new") == ["d", "d/e", "d/e/a", "e", "e/a"]
    f.fails("new/d already exists", "cp", "-r", f / "d", f / "new")
    f.run("cp", "-r", "-f", f / "d", f / "new")


def test_copy_errors_name_the_target(f: Files) -> None:
    f.write("a")
    f.write("b")
    f.fails("its directory does not exist", "cp", f / "a", f / "none/a")
    f.fails("none/ does not exist", "cp", f / "a", f / "none/")
    f.fails("is not a directory; 2 files cannot be copied into it", "cp", f / "a", f / "b", f / "c")
    f.fails("x does not exist", "cp", f / "x", f / "c")
    f.fails("is a directory; give the name of the file", "put", "-", f.base)
    f.fails("its parent directory does not exist", "put", "-", f / "none/a")
    assert f.names() == ["a", "b"]


def test_one_failed_copy_does_not_stop_the_others(f: Files) -> None:
    f.write("a", b"1")
    f.write("c", b"3")
    f.make("to")
    f.fails("b does not exist", "cp", f / "a", f / "b", f / "c", f / "to")
    assert f.names("to") == ["a", "c"]


def test_mv_renames_and_moves_into_directories(f: Files) -> None:
    f.write("a", b"1")
    f.make("d")
    f.run("mv", f / "a", f / "b")
    assert f.names() == ["b", "d"]
    f.run("mv", f / "b", f / "d")
    assert f.names() == ["d", "d/b"]
    f.run("mv", f / "d", f / "e")
    assert f.read("e/b") == b"1"
    f.fails("none", "mv", f / "none", f / "x")
    f.make("e/e")
    f.fails("cannot rename", "mv", f / "e", f / "e/e")


def test_mv_between_file_systems_copies_and_removes(f: Files, yard: Yard) -> None:
    other = Path("/dev/shm") / f"hy-{os.getpid()}-{yard.runtime.name}"
    other.mkdir()
    try:
        (other / "d").mkdir()
        (other / "d/a").write_text("1")
        f.run("mv", other / "d", f.base)
        assert f.read("d/a") == b"1" and not (other / "d").exists()
        f.write("b", b"2")
        f.run("mv", f / "b", other / "c")
        assert (other / "c").read_text() == "2" and f.names() == ["d", "d/a"]
    finally:
        subprocess.run(["rm", "-r", other], check=True)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_a_copy_quietly_and_leaves_nothing(f: Files, how: signal.Signals) -> None:
    p = f.start("put", "-", f / "a", stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert p.stdin
    p.stdin.write(b"x" * 100_000)
    p.stdin.flush()
    wait_for(lambda: any(n.endswith("._COPYING_") for n in f.names()), "the copy to have begun")
    p.send_signal(how)
    assert p.wait(60) == -how
    assert p.stderr and p.stderr.read() == b""
    p.stdin.close()
    assert f.names() == []


def test_cat_exits_quietly_if_its_reader_is_gone(f: Files) -> None:
    f.write("a", b"x" * 5_000_000)
    p = f.start("cat", f / "a", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert p.stdout and p.stderr
    p.stdout.read(10)
    p.stdout.close()
    assert p.stderr.read() == b""
    assert p.wait(60) in (0, -signal.SIGPIPE)


def take_terminal(slave: int) -> None:
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)


def test_long_copy_shows_its_progress_in_one_line(f: Files) -> None:
    """Data arrives more than a second after the start, and a line on the terminal shows the progress."""
    master, slave = pty.openpty()
    p = f.start("put", "-", f / "a", stdin=subprocess.PIPE, stderr=slave, preexec_fn=lambda: take_terminal(slave))
    os.close(slave)
    assert p.stdin
    seen = b""
    while b"/s" not in seen:
        p.stdin.write(b"x" * 65536)
        p.stdin.flush()
        if select.select([master], [], [], 0.05)[0]:
            seen += os.read(master, 65536)
    p.stdin.close()
    assert p.wait(60) == 0
    seen += os.read(master, 65536)
    os.close(master)
    assert re.search(rb"\rstandard input  [\d.]+ [KM]B  [\d.]+ [KM]B/s\x1b\[K", seen), seen
    assert seen.endswith(b"\r\x1b[K") and b"\n" not in seen
    assert f.names() == ["a"]


# ---- changes -----

def test_rm_removes_directories_only_with_r(f: Files) -> None:
    f.write("a")
    f.make("d/e")
    f.fails("d is a directory; use rm -r to remove it", "rm", f / "d")
    f.fails("none does not exist", "rm", f / "none")
    f.run("rm", "-f", f / "none")
    f.run("rm", "-r", f / "d", f / "a")
    assert f.names() == []


def test_rm_refuses_the_current_and_the_root_directory(f: Files, yard: Yard) -> None:
    (yard.project / "keep").touch()
    for path in (".", "..", "/", f"{yard.project}/."):
        f.fails("is not removed", "rm", "-r", "-f", path)
    assert (yard.project / "keep").exists()


def test_mkdir_creates_parents_with_p(f: Files) -> None:
    f.run("mkdir", f / "a", f / "b")
    f.fails("a exists already", "mkdir", f / "a")
    f.fails("its parent directory does not exist", "mkdir", f / "x/y")
    f.run("mkdir", "-p", f / "x/y", f / "a")
    f.write("file")
    f.fails("cannot create the directory", "mkdir", "-p", f / "file/d")
    assert f.names() == ["a", "b", "file", "x", "x/y"]


def test_touch_creates_empty_files_and_keeps_existing_ones(f: Files) -> None:
    f.write("a", b"1")
    f.run("touch", f / "a", f / "b", f.base)
    assert f.read("a") == b"1" and f.read("b") == b""
    f.fails("its parent directory does not exist", "touch", f / "none/a")


def mode(f: Files, path: str) -> str:
    return f.json("stat", f / path)[0]["mode"]


@pytest.mark.parametrize("rights, file, folder", [
    ("750", "0750", "0750"), ("u+x", "0744", "0755"), ("go-r", "0600", "0711"), ("a=rX", "0444", "0555"),
    ("g+w,o=", "0660", "0770"), ("+x", "0755", "0755"), ("u=rwx,go=", "0700", "0700"), ("1777", "1777", "1777"),
    ("o+t", "1644", "1755"),
])
def test_chmod_takes_octal_and_symbolic_modes(f: Files, rights: str, file: str, folder: str) -> None:
    f.make("d")
    f.write("d/a")
    f.run("chmod", "755", f / "d")
    f.run("chmod", "644", f / "d/a")
    f.run("chmod", rights, f / "d/a", f / "d")
    assert mode(f, "d") == folder
    f.run("chmod", "755", f / "d")
    assert mode(f, "d/a") in (file, "0644" if file[0] == "1" else file)  # HDFS has no sticky bit on files


def test_chmod_recursive(f: Files) -> None:
    f.make("d/e")
    f.write("d/e/a")
    f.run("chmod", "-R", "go=,u=rwX", f / "d")
    assert [mode(f, p) for p in ("d", "d/e", "d/e/a")] == ["0700", "0700", "0600"]
    f.run("chmod", "u+q", f / "d", rc=2)
    assert "invalid permissions 'u+q'" in f.stderr
    f.run("chmod", "888", f / "d", rc=2)
    f.fails("none does not exist", "chmod", "700", f / "none")


def test_chown_sets_owner_and_group_by_name(f: Files) -> None:
    f.make("d")
    f.write("d/a")
    entry, = f.json("stat", f / "d/a")
    f.run("chown", "-R", f"{entry['owner']}:{entry['group']}", f / "d")
    f.run("chown", f":{entry['group']}", f / "d/a")
    assert f.json("stat", f / "d/a")[0]["owner"] == entry["owner"]
    f.run("chown", ":", f / "d", rc=2)
    assert "invalid owner" in f.stderr
    f.fails("none does not exist", "chown", entry["owner"], f / "none")


# ---- the command line ----

@pytest.mark.parametrize("command", ["ls", "cat", "put", "get", "cp", "mv", "rm", "mkdir", "stat", "du", "df", "chmod",
                                     "chown", "tail", "touch"])
def test_help_has_usage_and_two_examples(f: Files, command: str) -> None:
    text = f.run(command, "--help").decode()
    assert f.run("help", command).decode() == text
    assert len(re.findall(rf"^  .*hopyard fs {command} ", text, re.M)) >= 3, "the usage and two examples"
    assert max(map(len, text.splitlines())) <= 100
    assert f"  fs {command} " in f.run("--help").decode()


def test_usage_errors(f: Files) -> None:
    for args, words in ((["lss", "x"], "did you mean 'ls'"), (["cat"], "missing argument"),
                        (["cp", "a"], "missing argument"), (["ls", "--jsn"], "did you mean --json"),
                        (["frobnicate"], "hopyard fs --help")):
        f.run(*args, rc=2)
        assert words in f.stderr
    f.fails("gopher://", "ls", "gopher://host/x")
    f.fails("x does not exist", "ls", f / "x")
    f.fails("x does not exist", "cat", f / "x")
    f.fails("cannot read", "cat", f.base)
    f.fails("x does not exist", "tail", f / "x")
    f.fails("x does not exist", "stat", f / "x")
    f.fails("x does not exist", "du", f / "x")


def test_relative_paths_are_local_for_any_project(f: Files, yard: Yard) -> None:
    (yard.project / "here").write_text("local")
    yard.env["HOPYARD_PROJECT"] = "hdfs://nowhere.invalid/Projects/demo"
    assert f.run("cat", "here") == b"local"
    assert f.run("ls").split()[-1] == b"here"
