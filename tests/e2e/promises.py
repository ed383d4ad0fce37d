# SPDX-License-Identifier: Apache-2.0
"""Runs functions test_… one after the other on every rank of a training.

Importing TensorFlow takes longer than all of them, so many share one process. Each rank writes the results to
FOLDER/RANK.json, and pytest reports each as a separate test.
"""
from __future__ import annotations

import json
import re
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Callable

# A rank without an error until then would never get one. How soon it does: bench/allreduce_errors.py.
HUNG_S = 20


def names(program: Path) -> list[str]:
    return re.findall(r"^def (test_\w+)", program.read_text(), re.MULTILINE)


def keep(module: dict[str, Any], rank: int) -> None:
    """On this rank. A failure does not end the program: the other ranks still take part in collectives."""
    kept = {}
    for name in names(Path(module["__file__"])):
        try:
            module[name]()
            kept[name] = ""
        except BaseException:
            kept[name] = traceback.format_exc()
        print(name, "ok" if not kept[name] else kept[name], flush=True)
    Path(sys.argv[1], f"{rank}.json").write_text(json.dumps(kept))


def refused(kind: type[Exception], call: Callable[[], Any], *words: str) -> None:
    """On every rank: the call fails with these words, and does not hang. The time starts when the last rank has called."""
    import numpy as np  # pytest, which imports this module, does not need it

    import hopyard.collective as hvd

    called, output = time.monotonic(), None
    try:
        call()
    except kind as error:
        output = str(error)
    took = time.monotonic() - hvd.allgather(np.array([called])).max()  # one machine has one such clock
    assert output is not None, f"no {kind.__name__}"
    assert all(re.search(word, output) for word in words), f"{words} not in: {output}"
    assert took <= HUNG_S, f"refused after {took:.2f} s: {output}"


def broken(folder: Path, ranks: int, name: str) -> str:
    """Tracebacks of the ranks where a test failed, or an empty string."""
    each = {rank: json.loads(Path(folder, f"{rank}.json").read_text())[name] for rank in range(ranks)}
    return "\n".join(f"--- rank {rank}\n{text}" for rank, text in each.items() if text)
