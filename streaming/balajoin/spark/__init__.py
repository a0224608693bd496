"""Spark itself: its session and processes, its jars, and the partition on which it puts each group."""
