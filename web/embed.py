#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes files as C arrays for src/web/assets.c: embed.py OUT.c FILE…"""

import gzip
import hashlib
import os
import sys

TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def array(name: str, data: bytes) -> str:
    lines = [", ".join(map(str, data[i:i + 24])) for i in range(0, len(data), 24)]
    return f"static const unsigned char {name}[] = {{\n" + ",\n".join(lines) + "};\n"


def main(out: str, *paths: str) -> None:
    arrays, rows = [], []
    for i, path in enumerate(paths):
        is_page = path.endswith(".html")  # the server puts its base URL into it
        with open(path, "rb") as file:
            data = file.read() if is_page else gzip.compress(file.read(), 9, mtime=0)
        arrays.append(array(f"file_{i}", data))
        rows.append(f'    {{"{os.path.basename(path)}", "{TYPES[os.path.splitext(path)[1]]}", '
                    f'"{hashlib.sha256(data).hexdigest()[:16]}", {str(not is_page).lower()}, '
                    f'file_{i}, sizeof file_{i}}},\n')
    with open(out, "w") as file:
        file.write('#include "web/assets.h"\n\n' + "\n".join(arrays)
                   + "\nconst struct hy_asset hy_assets[] = {\n" + "".join(rows) + "    {0},\n};\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
