"""Watching a join: a page, a terminal, a recorded run and pictures of it, all made of the same `Moment`s."""
