"""Which product is behind a hash: routers know keys by nothing else."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from balajoin.demo.scenario import product_key
from balajoin.edge import hash_of


def product_names(spark: SparkSession, products: int) -> dict[int, str]:
    keys = spark.createDataFrame([(product_key(number),) for number in range(products)], "key string")
    hashes = keys.select("key", hash_of(F.col("key").cast("binary")).alias("hash"))
    return {row.hash: row.key for row in hashes.collect()}
