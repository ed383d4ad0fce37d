# SPDX-License-Identifier: Apache-2.0
"""Columns from a hub as NumPy arrays, nested like rows."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

Column = tuple[str, tuple[int, ...], Any, Any, Any]  # dtype, shape of a row, values, ends of values and of rows


def numpy_module() -> Any:
    import numpy

    return numpy


def array_of(column: Column, rows: int) -> np.ndarray:
    """A column as an array; strings, bytes and ragged columns are arrays of objects."""
    np = numpy_module()
    dtype, shape, values, value_ends, row_ends = column
    items = rows if row_ends is None else int(np.frombuffer(row_ends, np.int64)[-1])
    if value_ends is None:
        flat = np.frombuffer(values, dtype).reshape(items, *shape)
    else:
        ends = np.frombuffer(value_ends, np.int64).tolist()
        view = memoryview(values)
        cells = [str(view[a:b], "utf-8") if dtype == "str" else bytes(view[a:b]) for a, b in itertools.pairwise(ends)]
        flat = np.array(cells, object).reshape(items, *shape)
    if row_ends is None:
        return flat
    return _objects([flat[a:b] for a, b in itertools.pairwise(np.frombuffer(row_ends, np.int64))])


def _objects(values: list[Any]) -> np.ndarray:
    array = numpy_module().empty(len(values), object)
    array[:] = values
    return array


def stack_rows(rows: list[Any]) -> Any:
    """Arrays of rows that arrived without columns."""
    first = rows[0] if rows else None
    if isinstance(first, dict):
        return {key: _of_cells([row[key] for row in rows]) for key in first}
    if isinstance(first, (tuple, list)):
        parts = [_of_cells(list(cells)) for cells in zip(*rows)]
        return parts if isinstance(first, list) else tuple(parts)
    return _of_cells(rows)


def _of_cells(cells: list[Any]) -> np.ndarray:
    np = numpy_module()
    try:
        return np.array(cells)
    except ValueError:  # their lengths differ
        return _objects(cells)


def nest_arrays(shape: str, arrays: list[Any]) -> Any:
    """The arrays, nested like a row (src/feed/feed.h documents the format of `shape`)."""
    position, leaves = 0, iter(arrays)

    def key() -> str:
        nonlocal position
        colon = text.index(b":", position)
        begin, position = colon + 1, colon + 1 + int(text[position:colon])
        return text[begin:position].decode()

    def inside(end: int) -> list[Any]:
        nonlocal position
        found: list[Any] = []
        while text[position] != end:
            found.append((key(), part()) if end in b"}>" else part())
        position += 1
        return found

    def part() -> Any:
        nonlocal position
        kind = text[position : position + 1]
        position += 2 if kind == b"l" else 1
        if kind in (b"{", b"<"):
            return dict(inside(b"}"[0] if kind == b"{" else b">"[0]))
        if kind == b"(":
            return tuple(inside(b")"[0]))
        return inside(b"]"[0]) if kind == b"[" else next(leaves)

    text = shape.encode()
    return part() if text else ()
