# SPDX-License-Identifier: Apache-2.0
"""Displays a run: `hopyard attach` in a terminal, in a notebook or in a pipe.

The program decides what is shown, and what Ctrl-C does in a terminal.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from typing import Any

from .._base.errors import Error
from . import program as _program
from .result import load


@contextmanager
def interrupts(then: Callable[[], Any] = lambda: None) -> Iterator[list[int]]:
    """Within this context, Ctrl-C is recorded in the list and calls `then`, and raises no KeyboardInterrupt.

    It installs a handler, because a child would inherit SIG_IGN. Only the main thread can set handlers; in other
    threads, and if Ctrl-C is ignored, nothing changes.
    """
    received: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before in (signal.SIG_IGN, None):
        yield received
        return

    def handle(number: int, frame: Any) -> None:
        received.append(number)
        then()

    signal.signal(signal.SIGINT, handle)
    try:
        yield received
    finally:
        signal.signal(signal.SIGINT, before)


def in_notebook() -> bool:
    """Whether this is a Jupyter kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return getattr(shell, "kernel", None) is not None


def _terminal() -> int | None:
    """The file descriptor of sys.stdout if that is a terminal."""
    try:
        fd = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):  # None, redirected or closed
        return None
    return fd if os.isatty(fd) else None


def how_to_continue(run: int, is_fed: bool = False) -> str:
    return (
        f"run {run} continues; watch it with experiment.attach({run}), or in a terminal with: "
        f"hopyard attach {run}; stop it with: hopyard stop {run}"
        + ("" if is_fed else f"; continue it after that with: hopyard resume {run}")
    )


def _in_terminal(command: list[str], fd: int) -> int:
    """The child handles Ctrl-C, which it receives too: it asks the user what to do."""
    sys.stdout.flush()
    with interrupts():
        return subprocess.Popen(command, stdout=fd).wait()


@contextmanager
def _watching(command: list[str], training: bool = False) -> Iterator[subprocess.Popen[str]]:
    """`hopyard attach` in a new session, so that Ctrl-C reaches only this process. Raises its error message.

    For a training, stdout and stderr are one stream: stderr also has the ranks' output.
    """
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if training else errors, text=True, errors="replace", start_new_session=True,
        ) as child:  # fmt: skip
            try:
                yield child
            except BaseException:
                child.terminate()  # it only watches: the run continues
                raise
        errors.seek(0)
        message = _program.error_message("attach", errors.read())
    if child.returncode and message:
        raise Error(message)


def _in_pipe(command: list[str], training: bool) -> int:
    """There is no user to ask: Ctrl-C stops the run, as it does for the program."""
    with _watching(command, training) as child, interrupts(lambda: child.send_signal(signal.SIGINT)):
        for line in child.stdout or ():
            if sys.stdout is not None:
                sys.stdout.write(line)
                sys.stdout.flush()
    return child.returncode


class _Text(HTMLParser):
    """The text of an HTML fragment: a line for each block and row, two spaces between cells."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = [""]

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag in ("div", "p", "tr", "br") and self.lines[-1]:
            self.lines.append("")
        elif tag in ("td", "th") and self.lines[-1]:
            self.lines[-1] += "  "

    def handle_endtag(self, tag: str) -> None:
        if tag in ("div", "p", "tr") and self.lines[-1]:
            self.lines.append("")

    def handle_data(self, data: str) -> None:
        self.lines[-1] += data.replace("\xa0", " ")


def _as_text(fragment: str) -> str:
    parser = _Text()
    parser.feed(fragment)
    parser.close()
    return "\n".join(line.rstrip() for line in parser.lines if line.strip())


def _in_notebook(command: list[str], run: int, is_fed: bool) -> int:
    """Each line is an HTML fragment that replaces the previous one. An interrupt detaches from the run."""
    from IPython.display import display

    shown = display({"text/plain": ""}, raw=True, display_id=True)
    try:
        with _watching([*command, "--html"]) as child:
            for line in child.stdout or ():
                shown.update({"text/html": line, "text/plain": _as_text(line)}, raw=True)
    except KeyboardInterrupt:
        print(how_to_continue(run, is_fed))
        raise KeyboardInterrupt(f"run {run} continues") from None
    return child.returncode


def show(
    run: int, project: str | os.PathLike[str] | None = None, training: bool = False, is_fed: bool = False
) -> int:  # fmt: skip
    """Shows the run until it ends or the user detaches; returns the exit status of `hopyard attach`.

    Raises its error message, unless the reason is that the driver has died: the run's state shows that.
    """
    try:
        return _show(run, project, training, is_fed)
    except Error:
        if load(run, project).state == "interrupted":
            return 1
        raise


def _show(run: int, project: str | os.PathLike[str] | None, training: bool, is_fed: bool) -> int:
    command = _program.command("attach", str(run), project=project)
    fd = _terminal()
    if in_notebook():
        return _in_notebook(command, run, is_fed)
    if training:
        command.append("--no-reason")  # the exception has the reason
    return _in_pipe(command, training) if fd is None else _in_terminal(command, fd)


def wait(run: int, project: str | os.PathLike[str] | None = None) -> int:
    """The same without output."""
    command = _program.command("attach", str(run), project=project)
    quiet = subprocess.DEVNULL
    return subprocess.run(
        command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True, check=False
    ).returncode
