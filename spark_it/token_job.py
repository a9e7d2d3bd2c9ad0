"""Spark job with Kerberos for `spark_it.test_spark_tokens`: fetches delegation tokens, with which its tasks log in.

It runs in a process of its own, since security is fixed when the JVM starts. A local Spark has no scheduler that
fetches tokens, as YARN and Kubernetes have; so Spark's token manager is called here, as those call it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from pyspark.sql import SparkSession


def fetch_delegation_tokens(spark: SparkSession) -> int:
    """Fetch a delegation token of each cluster in Spark's settings, and add them to the user's credentials.

    Returns:
        The number of tokens.
    """
    jvm: Any = spark._jvm
    security = jvm.org.apache.hadoop.security
    loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    jvm.java.lang.Thread.currentThread().setContextClassLoader(loader)
    context: Any = spark.sparkContext._jsc.sc()
    manager = jvm.org.apache.spark.deploy.security.HadoopDelegationTokenManager(
        context.conf(), context.hadoopConfiguration(), None
    )
    tokens = security.Credentials()
    manager.obtainDelegationTokens(tokens)
    security.UserGroupInformation.getCurrentUser().addCredentials(tokens)
    return int(tokens.numberOfTokens())


def main() -> None:
    """Read topic t, append its values in capitals to it, and print them as JSON with the number of tokens.

    The settings are JSON in the first argument of the command line.
    """
    options = json.loads(sys.argv[1])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[1]").appName("with_tokens")
    for key, value in options["spark"].items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    tokens = fetch_delegation_tokens(spark)
    kafka = {f"kafka.{key}": value for key, value in options["kafka"].items()}
    rows = (
        spark.read.format("kafka").options(subscribe="t", **kafka).load().selectExpr("upper(cast(value as string)) v")
    )
    read = sorted(row.v for row in rows.collect())
    rows.selectExpr("v as value").write.format("kafka").options(topic="t", **kafka).save()
    print(json.dumps({"tokens": tokens, "read": read}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
