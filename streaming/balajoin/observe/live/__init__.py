"""The live view of joins: a page, a terminal, a recorded run and its plots, all made from the same `Moment`s."""
