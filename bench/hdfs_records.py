# SPDX-License-Identifier: Apache-2.0
"""TFRecords in tf.data, from a local disk and from HDFS in turns; hdfs.py starts it.

    hdfs_records.py URL FOLDER BYTES ROUNDS

Both hold the same files of records of 3 KB. What is there is read once before the clock runs, so the local ones are in
the page cache, and so are those that a DataNode reads. Prints MEASURED and seconds, of each side and round, as JSON.
"""

import json
import os
import random
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import tensorflow as tf

RECORD, BATCH, FILES = 3000, 256, 4


def make(folder: str, records: int) -> list[str]:
    paths, rng = [os.path.join(folder, f"{i}.tfrecords") for i in range(FILES)], random.Random(7)
    noise = rng.randbytes(RECORD * 1024)
    for path in paths:
        with tf.io.TFRecordWriter(path) as out:
            for _ in range(records // FILES):
                begin = rng.randrange(len(noise) - RECORD)
                out.write(noise[begin : begin + RECORD])
    return paths


def copy(paths: list[str], url: str) -> list[str]:
    tf.io.gfile.makedirs(url)
    copies = [f"{url}/{os.path.basename(path)}" for path in paths]
    for path, to in zip(paths, copies):
        tf.io.gfile.copy(path, to)
    return copies


def read(paths: list[str]) -> tuple[float, int]:
    """Seconds, and how many records. An iterator that goes sometimes waits for tf.data's tuner, which looks after 10, 30,
    70, … ms: until 1.27 s have passed, wherever the records came from."""
    begun, count = time.perf_counter(), 0
    iterator = iter(tf.data.TFRecordDataset(paths).batch(BATCH))
    for batch in iterator:
        count += batch.shape[0]
    return time.perf_counter() - begun, count


def main() -> int:
    url, folder, size, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    records = size // RECORD // FILES * FILES
    local = make(folder, records)
    sides = {"local": local, "hdfs": copy(local, url)}
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for i in range(rounds + 1):
        for side, paths in sides.items():
            took, count = read(paths)
            if count != records:
                sys.exit(f"{records} records were written, and {side} has {count}")
            if i:
                seconds[side].append(took)
    print("MEASURED " + json.dumps({"bytes": records * RECORD, **seconds}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
