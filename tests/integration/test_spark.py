"""``streamad.spark`` in a Spark of two threads judges as the model does. It takes 20 s of a core: a JVM starts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

from streamad.errors import InputError
from tests.support.walks import fitted, walks, with_faults


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A session of UTC; where Spark or Java is missing the tests are skipped, but fail in CI."""
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra
    except ImportError as error:
        SparkSession, missing = None, str(error)
    else:
        missing = "" if shutil.which("java") else "no Java"
    if missing or SparkSession is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI must test with Spark: {missing}", pytrace=False)
        pytest.skip(f"needs Spark: {missing}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYTHONWARNINGS", "ignore")
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.memory", "512m")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
            .config("spark.sql.session.timeZone", "UTC")
            .getOrCreate()
        )
        yield session
        session.stop()


@pytest.mark.filterwarnings("ignore")
def test_spark_judges_as_the_model_does(spark: Any) -> None:
    from streamad.spark import judged, score  # noqa: PLC0415

    model = fitted(walks(40), channels=["temp", "pressure"])
    X = [*walks(6, 1), *with_faults(walks(3, 2))]
    begin = pd.Timestamp("2026-03-01T08:00:00")
    rows = pd.DataFrame([
        {"id": f"batch {place}", "time": begin + pd.Timedelta(seconds=point), "temp": a, "pressure": b}
        for point in range(X[0].shape[1])
        for place, each in enumerate(X)
        for a, b in [each[:, point].tolist()]
    ])  # fmt: skip
    frame = spark.createDataFrame(rows).repartition(2)
    found = {row["sequence"]: row for row in judged(frame, model).collect()}
    for verdict in model.verdicts(rows):
        row = found.pop(verdict.sequence)
        assert row["score"] == pytest.approx(verdict.score, rel=1e-6)
        assert (row["decision"], row["p_value"], row["n_samples"]) == (
            verdict.decision, verdict.p_value, verdict.n_samples,
        )  # fmt: skip
        assert row["start_time"] == verdict.start_time.replace(tzinfo=None)
    assert not found
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        with pytest.raises(InputError, match=r"zone is Europe/Berlin.*'UTC'"):
            score(model)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
