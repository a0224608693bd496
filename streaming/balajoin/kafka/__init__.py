"""Kafka clients and their options, topics and rights, and the records that operators publish themselves."""
