"""When and where a training runs: the process of its own, what starts it, what it reports."""
