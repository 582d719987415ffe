"""Sequences of one stream: runs of samples, where a sequence begins and ends, late samples, times far ahead."""
