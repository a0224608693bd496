"""What is asked of Kafka itself: clients' options, topics and rights, and records that operators write on the side."""
