"""Forms of messages that hold more than the samples of one sequence."""
