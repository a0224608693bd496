"""Expressions that a record may make fail: the query goes on without that record."""

from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F


def attempt(spark: SparkSession, column: Column) -> Column:
    """An array with what the column gives; null where to compute it fails, in whatever way.

    Spark has this expression, but no function for it. The lambda keeps Spark from computing what two attempts have in
    common ahead of both, and so outside of them.
    """
    jvm: Any = spark._jvm
    expressions = jvm.org.apache.spark.sql.classic.ExpressionUtils
    within = F.transform(F.array(column), lambda it: it)
    tried = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(expressions.expression(within._jc))
    attempted: Any = type(column)
    return attempted(expressions.column(tried))  # type: ignore[no-any-return]
