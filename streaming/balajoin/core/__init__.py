"""The floor: blocks of rows, hashes, kernels, messages, event time, a join's description. No Spark, no Kafka."""
