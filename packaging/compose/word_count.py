"""Spark job of spark.yml: count the words of a topic and print the counts."""

from pyspark.sql import SparkSession
from pyspark.sql.functions import explode, split

spark = SparkSession.builder.appName("word-count").getOrCreate()
spark.sparkContext.setLogLevel("WARN")
lines = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", "kafka:19092")
    .option("subscribe", "lines")
    .option("startingOffsets", "earliest")
    .load()
)
words = lines.select(explode(split(lines.value.cast("string"), " ")).alias("word"))
words.groupBy("word").count().writeStream.outputMode("complete").format("console").start().awaitTermination()
