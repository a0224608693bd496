"""Evaluates expressions that may fail on a record, so that the query goes on without that record."""

from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F


def attempt(spark: SparkSession, column: Column) -> Column:
    """An array that holds the column's value, or null where computing the column fails for any reason.

    Spark has this expression, but no function for it. Spark computes a common part of two attempts once before both,
    and so outside of them; the lambda prevents that.
    """
    jvm: Any = spark._jvm
    expressions = jvm.org.apache.spark.sql.classic.ExpressionUtils
    within = F.transform(F.array(column), lambda it: it)
    tried = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(expressions.expression(within._jc))
    attempted: Any = type(column)
    return attempted(expressions.column(tried))  # type: ignore[no-any-return]
