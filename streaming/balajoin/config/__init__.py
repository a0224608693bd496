"""What a user may say: the models of all settings, the file that holds them, and what is wrong with either."""
