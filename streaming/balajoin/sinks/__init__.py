"""Results into Kafka, exactly once: a node's rows of a batch, and a marker of that batch, in one transaction."""
