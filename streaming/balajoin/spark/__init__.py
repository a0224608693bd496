"""What is asked of Spark itself: its session and processes, its jars, and where it puts which group."""
