"""Both ends of the pipeline, in Spark SQL and Arrow: how records become blocks of rows, and pairs become results."""
