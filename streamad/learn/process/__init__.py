"""The learner: a process that reads what the workers committed, and makes models of it."""
