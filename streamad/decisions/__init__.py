"""The decision log: who decided what, when and why, in one chain of hashes for each writer."""
