"""`rostrum bench messages`: messages to a group, beside the tools people use: how many a second, how late."""
