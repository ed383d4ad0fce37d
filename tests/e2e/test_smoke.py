# SPDX-License-Identifier: Apache-2.0
"""Quick tests for `make check` of features that otherwise need TensorFlow; most smoke tests are in the files of their area."""
from __future__ import annotations

import pytest
from conftest import Yard

RECORD = bytes.fromhex("0500000000000000eab2043e68656c6c6fbb1f1c19")  # of the bytes "hello"


@pytest.mark.smoke
def test_records_are_counted_and_verified(yard: Yard) -> None:
    path = yard.project / "two.tfrecords"
    path.write_bytes(2 * RECORD)
    assert yard.run("records", "count", path).stdout.split() == ["2", str(path)]
    yard.run("records", "verify", path)
    path.write_bytes(RECORD + RECORD[:-1])
    yard.run("records", "verify", path, rc=1)
