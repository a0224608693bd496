"""What the operators publish to Kafka on the side, so that the result DataFrame stays free for any sink."""
