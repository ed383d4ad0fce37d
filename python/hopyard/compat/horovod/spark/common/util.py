# SPDX-License-Identifier: Apache-2.0
"""Rows in Parquet files, for KerasEstimator.fit_on_parquet."""

import contextlib
import secrets
import warnings
from collections.abc import Iterator
from typing import Any

from pyspark.sql import functions as F  # noqa: N812

from . import _rows
from .params import WITHOUT_EFFECT
from .store import AbstractFilesystemStore

__all__ = ["prepare_data"]


@contextlib.contextmanager
def prepare_data(
    num_processes: int, store: AbstractFilesystemStore, df: Any, label_columns: list[str],
    feature_columns: list[str] | None,
    validation: float | str | None = None, sample_weight_col: str | None = None, compress_sparse: bool = False,
    partitions_per_process: int = 10, verbose: int = 0,
) -> Iterator[None]:  # fmt: skip
    """Writes a DataFrame to the store's directories for training and validation data, with vectors as arrays; replaces
    existing files. They are kept for later programs."""
    if compress_sparse:
        warnings.warn(f"compress_sparse has no effect: {WITHOUT_EFFECT['compress_sparse_cols']}", stacklevel=3)
    _rows.check_validation(validation)
    others = {*label_columns, sample_weight_col, validation}
    features = [name for name in df.columns if name not in others] if feature_columns is None else feature_columns
    names = [*features, *label_columns, *([sample_weight_col] if sample_weight_col else [])]
    rows = _rows.flagged(df, names, validation, secrets.randbits(31)).repartition(
        num_processes * partitions_per_process
    )
    rows = rows.persist()  # evaluated once, so that a row is in one of the two
    try:
        if isinstance(validation, str) and not rows.where(F.col(_rows.FLAG).isNull()).isEmpty():
            raise ValueError(_rows.missing(_rows.FLAG))
        for flag, path in ((False, store.get_train_data_path()), (True, store.get_val_data_path())):
            if validation or not flag:
                rows.where(F.col(_rows.FLAG) == flag).drop(_rows.FLAG).write.mode("overwrite").parquet(path)
                if verbose:
                    print(f"wrote {path}", flush=True)
    finally:
        rows.unpersist()
    yield
