# SPDX-License-Identifier: Apache-2.0
"""TFRecords in Spark: Spark reads what TensorFlow wrote, and TensorFlow reads what Spark wrote, completely or not at all.

One session serves all tests, on executors whose Python has no hopyard.
"""
from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hdfs import Hdfs
from house import Notebook, houses
from spark import repair

TOOLS = """
import glob, re, hopyard.tfrecord as tfrecord, pyarrow as pa, tensorflow as tf
from pyspark.sql import Row

def failing(call):
    try:
        call()
    except Exception as error:
        return str(error)

def names(folder):
    return sorted(re.sub("-.*?[.]", ".", name) for name in os.listdir(folder))

def of_tensorflow(folder, codec="", message=tf.train.Example):
    files = sorted(glob.glob(f"{folder}/part-*"))
    return [message.FromString(r.numpy()) for r in tf.data.TFRecordDataset(files, codec)]

def feature(*values):
    kind = type(values[0])
    if kind is float:
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    if kind is int:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))

def example(**features):
    return tf.train.Example(features=tf.train.Features(feature=features))

def write(path, messages, codec=""):
    with tf.io.TFRecordWriter(path, codec) as file:
        for message in messages:
            file.write(message.SerializeToString())

def rows(df):
    return sorted(df.collect(), key=repr)

def read(path, **options):
    return spark.read.format("tfrecord").options(**options).load(path)

tfrecord.register(spark)
"""


def bare_python(folder: Path) -> str:
    """Ours, with all installed packages except hopyard."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    [libraries] = folder.glob("lib/python3*/site-packages")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "hopyard" not in path.name and path.name != "tensorflow-plugins":
            (libraries / path.name).symlink_to(path)
    return str(folder / "bin/python")


@pytest.fixture(scope="module")
def notebook(spark_cluster: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    repair("spark", spark_cluster)
    folder = tmp_path_factory.mktemp("tfrecord")
    env = {**spark_cluster["spark_env"], "PYSPARK_PYTHON": bare_python(folder / "bare")}
    for house in houses({**spark_cluster, "spark_env": env}, "spark", folder):
        house.notebook.evaluate(TOOLS)
        yield house.notebook


def test_executors_without_hopyard_get_that_of_the_session(notebook: Notebook, spark_cluster: dict[str, Any],
                                                           tmp_path: Path) -> None:
    output = notebook.evaluate(f"""
        import importlib.util
        installed = sc.parallelize(range(8), 8).map(lambda _: importlib.util.find_spec("hopyard") is not None)
        spark.range(100).repartition(8).write.format("tfrecord").mode("append").save("{tmp_path}/out")
        emit(installed=installed.collect(), rows=read("{tmp_path}/out").count(), app=sc.applicationId)
    """)
    assert not any(output["installed"]) and output["rows"] == 100
    assert list((spark_cluster["state"] / "spark").glob(f"worker*/{output['app']}/*/.hopyard-*/site/hopyard/__init__.py"))


def test_files_of_tensorflow_are_read(notebook: Notebook, tmp_path: Path) -> None:
    """Several files, compressed and not; missing features; hidden files are skipped."""
    output = notebook.evaluate(f"""
        path = "{tmp_path}"
        def of(n):
            rare = {{"rare": feature(n)}} if n % 2 else {{}}
            raw = feature(bytes([255, n]))
            return example(x=feature(n / 4, -1.0), n=feature(n), s=feature(b"row"), raw=raw, **rare)
        write(f"{{path}}/a.tfrecord", map(of, range(5)))
        write(f"{{path}}/b.gz", [example(x=feature(1.5), n=feature(5))], "GZIP")
        write(f"{{path}}/c", [example(n=feature(-6), x=tf.train.Feature(float_list=tf.train.FloatList()))], "ZLIB")
        for name in ("_hidden", ".hidden"):
            write(f"{{path}}/{{name}}", [example(n=feature(1 << 40))])
        df = read(path)
        found = sorted(df.collect(), key=lambda row: abs(row.n))
        emit(schema=df.dtypes, partitions=df.rdd.getNumPartitions(), whole=found == [
            *[Row(n=n, rare=n if n % 2 else None, raw=bytearray([255, n]), s="row", x=[n / 4, -1.0]) for n in range(5)],
            Row(n=5, rare=None, raw=None, s=None, x=[1.5]), Row(n=-6, rare=None, raw=None, s=None, x=[])],
            some=[read(p).count() for p in (path + "/b.gz", path + "/[ab]*", [path + "/c", path + "/a.tfrecord"])],
            typed=list(tfrecord.load(spark, path + "/b.gz", "n smallint, x array<double>, z string").first()))
    """)
    types = {"n": "bigint", "rare": "bigint", "raw": "binary", "s": "string", "x": "array<float>"}
    assert output["schema"] == [list(pair) for pair in types.items()]
    assert output["partitions"] == 3 and output["whole"] and output["some"] == [1, 6, 6]
    assert output["typed"] == [5, [1.5], None]


def test_tensorflow_reads_written_files(notebook: Notebook, tmp_path: Path) -> None:
    output = notebook.evaluate(f"""
        from decimal import Decimal
        types = ("y tinyint, h smallint, i int, l bigint, t boolean, f float, d double, e decimal(8,2), s string, "
                 "b binary, al array<bigint>, ad array<double>, ab array<boolean>, at array<string>, ay array<binary>")
        given = [(1, -2, 3, 1 << 40, True, 0.5, 0.25, Decimal("1.25"), "ü", bytearray([0, 255]), [1, -1], [0.5],
                  [True, False], ["", "x"], [bytearray([1]), bytearray()]), (None,) * 15,
                 (0,) * 4 + (False, 0.0, 0.0, Decimal(0), "", bytearray(), [], [], [], [], [])]
        df = spark.createDataFrame(given, types).coalesce(1)
        for codec, name in (("", ""), ("gzip", "GZIP"), ("org.apache.hadoop.io.compress.DefaultCodec", "ZLIB")):
            folder = f"{tmp_path}/out{{name}}"
            tfrecord.save(df, folder, codec=codec)
            first, second, third = of_tensorflow(folder, name)
            assert first == example(
                y=feature(1), h=feature(-2), i=feature(3), l=feature(1 << 40), t=feature(1), f=feature(0.5),
                d=feature(0.25), e=feature(1.25), s=feature("ü".encode()), b=feature(b"\\0\\xff"), al=feature(1, -1),
                ad=feature(0.5), ab=feature(1, 0), at=feature(b"", b"x"), ay=feature(b"\\1", b""))
            assert second == example() and third.features.feature["al"].WhichOneof("kind") == "int64_list"
            again = spark.read.format("tfrecord").schema(df.schema).load(folder)
            assert rows(again) == rows(df), rows(again)
        emit(names=[names(f"{tmp_path}/out{{n}}") for n in ("", "GZIP", "ZLIB")])
    """)
    assert output["names"] == [["_SUCCESS", f"part.tfrecord{ending}"] for ending in ("", ".gz", ".zlib")]


def test_sequence_examples_and_bare_records(notebook: Notebook, tmp_path: Path) -> None:
    output = notebook.evaluate(f"""
        types = "n bigint, c array<string>, q array<array<bigint>>, w array<array<string>>"
        given = [(1, ["a"], [[1, 2], [], [3]], [["x"], ["y", "z"]]), (2, None, None, [])]
        df = spark.createDataFrame(given, types).coalesce(1)
        tfrecord.save(df, "{tmp_path}/s", recordType="SequenceExample")
        none = tf.train.Feature(int64_list=tf.train.Int64List())
        lists = tf.train.FeatureLists(feature_list={{
            "q": tf.train.FeatureList(feature=[feature(1, 2), none, feature(3)]),
            "w": tf.train.FeatureList(feature=[feature(b"x"), feature(b"y", b"z")])}})
        context = tf.train.Features(feature={{"n": feature(1), "c": feature(b"a")}})
        first = of_tensorflow("{tmp_path}/s", message=tf.train.SequenceExample)[0]
        assert first == tf.train.SequenceExample(context=context, feature_lists=lists), first
        inferred = read("{tmp_path}/s", recordType="SequenceExample")
        again = tfrecord.load(spark, "{tmp_path}/s", df.schema, recordType="SequenceExample")
        bare = read("{tmp_path}/s", recordType="ByteArray")
        tfrecord.save(bare, "{tmp_path}/b", recordType="ByteArray")
        emit(same=rows(again) == rows(df), types=inferred.dtypes, bare=bare.dtypes,
            copied=of_tensorflow("{tmp_path}/b", message=tf.train.SequenceExample)
                   == of_tensorflow("{tmp_path}/s", message=tf.train.SequenceExample))
    """)
    assert output["same"] and output["copied"] and output["bare"] == [["byteArray", "binary"]]
    types = {"c": "string", "n": "bigint", "q": "array<array<bigint>>", "w": "array<array<string>>"}
    assert output["types"] == [list(pair) for pair in types.items()]


def test_modes(notebook: Notebook, tmp_path: Path) -> None:
    output = notebook.evaluate(f"""
        path = "{tmp_path}/out"
        df = spark.range(10).coalesce(2)
        tfrecord.save(df, path)
        error = failing(lambda: tfrecord.save(df, path))
        tfrecord.save(df, path, "ignore")
        counts = [read(path).count()]
        df.write.format("tfrecord").mode("append").save(path)
        counts.append(read(path).count())
        read(path).limit(3).write.format("tfrecord").mode("overwrite").save(path)  # overwrites the files that it reads
        emit(counts=[*counts, read(path).count()], error=error, names=names(path))
    """)
    assert output["counts"] == [10, 20, 3] and output["names"] == ["_SUCCESS", "part.tfrecord"]
    assert output["error"].startswith(f"{tmp_path}/out already exists; mode='overwrite' replaces it")


def test_partition_directories_are_columns(notebook: Notebook, tmp_path: Path) -> None:
    """Written with partition_by, and read again, in Spark's own layout: Spark's reader finds the same."""
    output = notebook.evaluate(f"""
        path = "{tmp_path}/out"
        df = spark.range(0, 60, 1, 3).selectExpr("id", "id % 3 as p", "if(id % 2 = 0, 'a/b c', null) as q")
        tfrecord.save(df, path, partition_by=["p", "q"])
        found = read(path)
        whole = rows(found.selectExpr("id", "cast(p as bigint) as p", "q")) == rows(df)
        files = glob.glob(path + "/p=*/q=*/part-*")
        df.write.partitionBy("p", "q").parquet("{tmp_path}/parquet")
        folders = lambda top: sorted(os.path.relpath(f, top) for f in glob.glob(top + "/p=*/q=*"))
        alike = folders(path) == folders("{tmp_path}/parquet") and len(folders(path)) == 6
        typed = tfrecord.load(spark, path, "p string, id int").where("p = '2'").count()
        tfrecord.save(df.where("id = 0"), path, "overwrite", partition_by="p")
        emit(whole=whole, types=found.dtypes, files=len(files), alike=alike,
            typed=typed, under=rows(read(path + "/p=0"))[0].asDict(), left=len(glob.glob(path + "/**/part-*", recursive=True)),
            gone=failing(lambda: tfrecord.save(df, path + "2", partition_by="r")),
            all=failing(lambda: tfrecord.save(df, path + "2", partition_by=["id", "p", "q"])))
    """)
    assert output["whole"] and output["types"] == [["id", "bigint"], ["p", "int"], ["q", "string"]] and output["alike"]
    assert output["files"] == 18, "one for each directory and task"
    assert output["typed"] == 20 and output["left"] == 1 and "p" not in output["under"]
    assert output["gone"] == "there is no column 'r' to partition by (columns: id, p, q)"
    assert output["all"] == "cannot partition by all columns: none is left for the records"


def test_inconsistent_partition_directories_are_reported(notebook: Notebook, tmp_path: Path) -> None:
    output = notebook.evaluate(f"""
        for folder in ("p=0", "p=x/q=1"):
            os.makedirs("{tmp_path}/out/" + folder)
            write("{tmp_path}/out/" + folder + "/f", [example(n=feature(1))])
        emit(error=failing(lambda: read("{tmp_path}/out")),
            type=failing(lambda: tfrecord.load(spark, "{tmp_path}/out/p=x", "n bigint, q date").collect()))
    """)
    assert f"the directories of {tmp_path}/out/p=0/f have the columns 'p', but those of {tmp_path}/out/p=x/q=1/f have 'p', 'q'" in output["error"]
    assert "'1' in 'q=1' is not valid for a column of type date32" in output["type"]


def test_only_selected_columns_are_read(notebook: Notebook, tmp_path: Path) -> None:
    """A column that does not fit its type is not parsed."""
    output = notebook.evaluate(f"""
        write("{tmp_path}/f", [example(a=feature(1), b=feature(b"x")), example(a=feature(2), b=feature(b"\\xff"))])
        given = "a bigint, b string"
        few = tfrecord.load(spark, "{tmp_path}/f", given, columns=["a"])
        emit(few=[row.a for row in rows(few)], types=few.dtypes, inferred=tfrecord.load(spark, "{tmp_path}/f", columns=["b", "a"]).dtypes,
            all=failing(lambda: tfrecord.load(spark, "{tmp_path}/f", given).collect()),
            none=failing(lambda: tfrecord.load(spark, "{tmp_path}/f", columns=["c"])))
    """)
    assert output["few"] == [1, 2] and output["types"] == [["a", "bigint"]] and output["inferred"] == [["b", "binary"], ["a", "bigint"]]
    assert "Invalid UTF8" in output["all"] and output["none"] == "there is no column 'c' (columns: a, b)"


def test_lossy_conversions_are_refused(notebook: Notebook, tmp_path: Path) -> None:
    """Feature lists, which an Example does not have, and doubles beyond a float."""
    output = notebook.evaluate(f"""
        lists = tf.train.FeatureLists(feature_list={{"q": tf.train.FeatureList(feature=[feature(1, 2)])}})
        context = tf.train.Features(feature={{"n": feature(1)}})
        write("{tmp_path}/s", [tf.train.SequenceExample(context=context, feature_lists=lists)])
        def save(value):
            return failing(lambda: tfrecord.save(spark.sql("SELECT " + value + " AS a"), "{tmp_path}/x"))
        large = [save("1e300D"), save("array(1D, -1e39D)")]
        infinite = save("array(double('Infinity'), double('NaN'), -3e38D, 1e-300D)")
        emit(inferred=failing(lambda: read("{tmp_path}/s")),
            given=failing(lambda: tfrecord.load(spark, "{tmp_path}/s", "n bigint").collect()),
            large=large, infinite=infinite,
            kept=repr(list(read("{tmp_path}/x").first().a)))
    """)
    for text in (output["inferred"], output["given"]):
        assert "the record has feature lists: it is a tf.SequenceExample, not a tf.Example; read it with the option" in text
    assert "the column 'a' contains 1e+300, but the floats of a feature end at 3.4e38" in output["large"][0]
    assert "the column 'a' contains -1e+39" in output["large"][1]
    assert output["infinite"] is None and output["kept"].startswith("[inf, nan, -3.0"), output["kept"]


FAIL = """
    def fail(batches):
        from pyspark import TaskContext
        for n, batch in enumerate(batches):
            yield batch
            if TaskContext.get().partitionId() == 3 and n == 1 and not os.path.exists(marker):
                if how != "always":
                    open(marker, "w").close()
                if how == "kill":  # the executor: the parent of Spark's daemon
                    os.kill(int(open("/proc/%d/stat" % os.getppid()).read().rpartition(")")[2].split()[1]), signal.SIGKILL)
                raise ValueError("fails on purpose")

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 1000)
    how, marker, path = "{how}", "{tmp_path}/marker", "{tmp_path}/out"
    df = spark.range(0, 20000, 1, 4).mapInArrow(fail, "id bigint")
"""


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_failed_task_is_retried(notebook: Notebook, tmp_path: Path, how: str) -> None:
    """Also if its executor was killed while it wrote."""
    output = notebook.evaluate(FAIL.format(how=how, tmp_path=tmp_path) + """
    df.write.format("tfrecord").mode("append").save(path)
    emit(names=os.listdir(path), ids=[row.id for row in read(path).collect()])
    """)
    assert sorted(output["ids"]) == list(range(20000)) and len(output["names"]) == 5, output["names"]
    assert (tmp_path / "marker").exists()


def test_failed_job_keeps_existing_files(notebook: Notebook, tmp_path: Path) -> None:
    output = notebook.evaluate(FAIL.format(how="always", tmp_path=tmp_path) + """
    spark.range(3).coalesce(1).write.format("tfrecord").mode("append").save(path)
    errors = [failing(lambda: df.write.format("tfrecord").mode(mode).save(path)) for mode in ("append", "overwrite")]
    failing(lambda: df.write.format("tfrecord").mode("append").save(path + "2"))
    emit(errors=errors, names=names(path), count=read(path).count(), new=os.path.exists(path + "2"))
    """)
    assert all("fails on purpose" in error for error in output["errors"])
    assert output["names"] == ["_SUCCESS", "part.tfrecord"] and output["count"] == 3
    assert not output["new"], "no empty directory is left"


def test_damaged_files_and_mismatched_types_are_reported(notebook: Notebook, tmp_path: Path) -> None:
    output = notebook.evaluate(f"""
        tfrecord.save(spark.range(5).coalesce(1), "{tmp_path}/a")
        [path] = glob.glob("{tmp_path}/a/part-*")
        data = bytearray(open(path, "rb").read())
        data[-8] ^= 1
        open(path, "wb").write(data)
        write("{tmp_path}/several", [example(x=feature(1, 2)), example(x=feature(3), y=feature(b"\\xff"))])
        def collect(schema, path, **options):
            return failing(lambda: spark.read.format("tfrecord").options(**options).schema(schema).load(path).collect())
        def save(value, **options):
            return failing(lambda: tfrecord.save(spark.sql("SELECT " + value + " AS a"), "{tmp_path}/x", **options))
        emit(path=path, damaged=collect("id bigint", path), several=collect("x bigint", "{tmp_path}/several"),
            text=collect("y string", "{tmp_path}/several"), kind=collect("x float", "{tmp_path}/several"),
            narrow=collect("x array<tinyint>, z map<string,int>", "{tmp_path}/several"),
            deep=save("array(array(1))"), struct=save("struct(1)", recordType="SequenceExample"),
            null=save("array(1, NULL)"), codec=save("1", codec="snappy"),
            type=failing(lambda: read("{tmp_path}/several", recordType="Table")),
            nothing=failing(lambda: read("{tmp_path}/nothing")), pattern=failing(lambda: read("{tmp_path}/no*")))
    """)
    start = (Path(output["path"]).stat().st_size // 5) * 4
    assert f"{output['path']} is damaged at byte {start}: a record's bytes do not match their checksum" in output["damaged"]
    for name, words in {
        "several": f"{tmp_path}/several, records 1 to 2: the feature 'x' is not valid for a column of type int64: "
                   "it has several values in a record; declare its column as an array",
        "text": "the feature 'y' is not valid for a column of type string: Invalid UTF8",
        "kind": "the feature 'x' is int64 here, but float in earlier rows",
        "narrow": "the column 'z' is map<string,int>, which a record of type Example does not support",
        "deep": "the column 'a' is array<array<int>>, which a record of type Example does not support",
        "struct": "which a record of type SequenceExample does not support",
        "null": "the column 'a' contains a null, but a feature cannot have one among its values",
        "codec": "invalid codec 'snappy'",
        "type": "invalid recordType 'Table'",
        "nothing": f"{tmp_path}/nothing does not exist",
        "pattern": f"{tmp_path}/no* matches no files",
    }.items():
        assert words in output[name], output[name]
    assert not (tmp_path / "x").exists()


def test_hdfs(notebook: Notebook, hdfs: Hdfs, tmp_path: Path) -> None:
    """With full URLs, and with paths if HDFS is the session's file system."""
    url = f"{hdfs.url}/{tmp_path.name}"
    output = notebook.evaluate(f"""
        df = spark.range(0, 1000, 1, 4)
        df.write.format("tfrecord").mode("overwrite").option("codec", "gzip").save("{url}/out")
        df.limit(5).write.format("tfrecord").mode("append").save("{url}/out")
        counts = [read("{url}/out").count(), read("{url}/out/*.gz").count()]
        hadoop = sc._jsc.hadoopConfiguration()
        before = hadoop.get("fs.defaultFS")
        hadoop.set("fs.defaultFS", "{hdfs.url}")
        tfrecord.register(spark)
        counts += [read("/{tmp_path.name}/out").count(), read("hdfs:///{tmp_path.name}/out").count()]
        error = failing(lambda: tfrecord.save(df, "/{tmp_path.name}/out"))
        hadoop.set("fs.defaultFS", before)
        tfrecord.register(spark)
        emit(counts=counts, error=error)
    """)
    assert output["counts"] == [1005, 1000, 1005, 1005] and f"{url}/out already exists" in output["error"]
    listed = hdfs.shell("-ls", "-C", f"/{tmp_path.name}/out").text.split()
    assert len(listed) == 6 and f"/{tmp_path.name}/out/_SUCCESS" in listed


@pytest.mark.full
def test_paths_on_yarn_are_on_hdfs(yarn_cluster: dict[str, Any], tmp_path: Path) -> None:
    """In the user's home directory, if it is relative; executors have no hopyard there either."""
    repair("yarn", yarn_cluster)
    env = {**yarn_cluster["yarn_env"], "PYSPARK_PYTHON": bare_python(tmp_path / "bare")}
    for house in houses({**yarn_cluster, "yarn_env": env}, "yarn", tmp_path):
        output = house.notebook.evaluate(f"""
            import hopyard.tfrecord as tfrecord
            df = spark.range(0, 1000, 1, 4)
            tfrecord.save(df, "/{tmp_path.name}/out", codec="gzip")
            tfrecord.save(df, "{tmp_path.name}-home")
            emit(rows=tfrecord.load(spark, "/{tmp_path.name}/out").count(), user=sc.sparkUser(),
                error=failing(lambda: tfrecord.save(df, "{tmp_path.name}-home")))
        """)
        assert output["rows"] == 1000
        assert f"/user/{output['user']}/{tmp_path.name}-home already exists" in output["error"]
        assert output["error"].startswith("hdfs://")


def test_dfutil(notebook: Notebook, tmp_path: Path) -> None:
    output = notebook.evaluate(f"""
        from tensorflowonspark import dfutil
        types = "n int, d double, s string, l array<int>, b binary"
        df = spark.createDataFrame([(1, 0.5, "a", [1, 2], bytearray([255]))], types)
        dfutil.saveAsTFRecords(df, "{tmp_path}/out")
        found = dfutil.loadTFRecords(sc, "{tmp_path}/out", binary_features=["b"])
        records = df.rdd.mapPartitions(dfutil.toTFExample(df.dtypes))
        mapped = records.mapPartitions(lambda part: dfutil.fromTFExample(part, ["b"])).collect()
        emit(types=found.dtypes, same=found.collect() == mapped, loaded=[dfutil.isLoadedDF(d) for d in (found, df)],
            again=failing(lambda: dfutil.saveAsTFRecords(df, "{tmp_path}/out")))
    """)
    assert output["types"] == [["b", "binary"], ["d", "double"], ["l", "array<bigint>"], ["n", "bigint"], ["s", "string"]]
    assert output["same"] and output["loaded"] == [True, False] and "already exists" in output["again"]
