"""Spark's schema of rows that are defined by their Arrow schema."""

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType


def spark_schema(schema: pa.Schema) -> StructType:
    return from_arrow_schema(schema)
