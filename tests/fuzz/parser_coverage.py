# SPDX-License-Identifier: Apache-2.0
"""Lines of the parsers that the fuzz targets reach (make fuzz-coverage, through tests/run).

PARSERS lists every source file that parses bytes written by another process, host or person, as a whole. Its lines are
those that clang's coverage counts, including error paths and failed allocations. Files that only move bytes
(hdfs/sock.c) or only keep state are not listed.
"""

import json
import os
import subprocess
from collections.abc import Iterable

GOAL = 90  # percent of the lines of each file

PARSERS = {
    "agent": ["metric_scan", "result_file"],
    "cli": ["config_file"],
    "collective/group": ["endpoint_text", "negotiate"],
    "collective/mesh": ["handshake"],
    "feed": ["batch", "batch_cursor", "cast", "gather", "schema", "signature"],
    "fs": ["glob_pattern", "posix_acl"],
    "gpu": ["mps_log"],
    "hdfs": ["acl", "cluster", "conf", "files", "input_stream", "output_stream"],
    "hdfs/data": ["block_reader", "datanode", "datanode_sasl", "erasure_code", "packet", "pipeline", "short_circuit",
                  "striped_reader"],
    "hdfs/rpc": ["exception", "rpc", "rpc_sasl"],
    "hdfs/security": ["sasl", "sasl_digest_md5", "sasl_gssapi", "security_layer", "tokens"],
    "record": ["columns", "example", "parquet_footer", "record"],
    "search": ["expression", "expression_check", "expression_syntax", "space", "space_syntax"],
    "share": ["names"],
    "web": ["http", "http_response"],
    "web/api": ["json_members"],
    "web/apps": ["proxy_head"],
    "web/files": ["csv"],
    "wire": ["frame", "idset", "message", "mux", "recv_streams", "send_streams", "usage"],
}


def sources() -> list[str]:
    return [f"src/{part}/{name}.c" for part, names in PARSERS.items() for name in names]


def lines_reached(profiles: Iterable[str], programs: list[str], root: str, merged: str) -> dict[str, tuple[int, int]]:
    """Lines and reached lines of each source file."""
    subprocess.run(["llvm-profdata", "merge", "-sparse", "-o", merged, *profiles], check=True)
    objects = [argument for program in programs for argument in ("-object", program)]
    done = subprocess.run(["llvm-cov", "export", "-summary-only", f"-instr-profile={merged}", *objects], check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # it warns about functions in several programs
    found = {}
    for file in json.loads(done.stdout)["data"][0]["files"]:
        path = os.path.relpath(os.path.normpath(os.path.join(root, "build", "coverage", file["filename"])), root)
        lines = file["summary"]["lines"]
        found[path] = (lines["count"], lines["covered"])
    return found


def percent(count: int, reached: int) -> float:
    return 100 * reached / count if count else 0


def table(by_corpus: dict[str, tuple[int, int]], by_all: dict[str, tuple[int, int]]) -> tuple[list[str], list[str]]:
    """The lines of the table, and the parsers below the goal."""
    rows = [f"{'parser':36} {'lines':>6} {'reached':>8} {'%':>6}   {'by the corpus alone':>19}"]
    below = []
    for path in sources():
        count, reached = by_all.get(path, (0, 0))
        share = percent(count, reached)
        alone = percent(*by_corpus.get(path, (0, 0)))
        rows.append(f"{path:36} {count:6} {reached:8} {share:6.1f}   {alone:19.1f}{'' if share >= GOAL else '  below'}")
        if share < GOAL:
            below.append(f"{path}: {share:.1f} % of its lines are reached, the goal is {GOAL} %")
    return rows, below
