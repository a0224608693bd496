"""The floor: rows as blocks, hashes, kernels, what a node is told of the join, and event time. No Spark, no Kafka."""
