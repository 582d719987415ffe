"""The measurement behind docs/model/detector.md: members, choices of members, and peers on labelled recordings."""
